// Command sallyport-runsc is gVisor with only the commands that sallyport uses.
//
// It is executed twice per sandbox and so links nothing else. It differs from
// upstream's runsc in six small ways, one file each: it joins the cgroups it is
// given before it does anything (join.go), it reports which limits a program ran
// into (sink.go) and when it has ended (exits.go), it shows the program its own limits instead of the host's memory
// and processors (limits.go), it has its seccomp filters compiled beforehand
// (precompiled.go), and it can hand out a sandbox's state without a file
// (freeze.go).
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/nvproxy"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

func main() {
	if err := joinCgroups(); err != nil {
		fmt.Fprintln(os.Stderr, "sallyport-runsc:", err)
		os.Exit(125)
	}
	postponeCollection()
	os.Args = showLimits(os.Args)
	workOnAll(os.Args)
	if os.Args[0] == "runsc-sandbox" {
		usePrecompiledFilters()
	}
	registerLimitsSink()
	registerExitsSink()
	cmds := map[util.SubCommand]string{
		new(cmd.Create): "", new(cmd.Start): "", new(cmd.Run): "", new(cmd.Delete): "", new(cmd.Kill): "",
		new(freeze): "", new(cmd.Restore): "",
		new(cmd.State): "", new(cmd.Wait): "", new(cmd.List): "", new(cmd.Events): "",
		new(nvproxy.Nvproxy): "", // which drivers it knows
		new(sentrycmd.Boot):  "internal", new(cmd.Gofer): "internal", new(sentrycmd.Umount): "internal",
	}
	cli.Run(nil, cmds, []subcommands.Command{})
}

// postponeCollection keeps the garbage collector out of the first second: a
// start takes a tenth of that, and a tenth of its work was collecting. A sandbox
// that goes on then collects as usual.
func postponeCollection() {
	usual := debug.SetGCPercent(800)
	time.AfterFunc(time.Second, func() { debug.SetGCPercent(usual) })
}
