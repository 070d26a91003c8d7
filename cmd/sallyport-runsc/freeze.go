package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
)

// A freeze is the command checkpoint, but that the state of the sandbox goes to
// descriptor 3 and never into a file: whoever reads it encrypts it.
type freeze struct{}

const fdState = 3

func (*freeze) Name() string           { return "freeze" }
func (*freeze) Synopsis() string       { return "write the state of a sandbox to descriptor 3 and end it" }
func (*freeze) Usage() string          { return "freeze <container id>\n" }
func (*freeze) SetFlags(*flag.FlagSet) {}

// FetchSpec implements util.SubCommand.
func (*freeze) FetchSpec(conf *config.Config, f *flag.FlagSet) (string, *specs.Spec, error) {
	c, err := loaded(conf, f)
	if err != nil {
		return "", nil, err
	}
	return c.ID, c.Spec, nil
}

func loaded(conf *config.Config, f *flag.FlagSet) (*container.Container, error) {
	return container.Load(conf.RootDir, container.FullID{ContainerID: f.Arg(0)}, container.LoadOpts{})
}

// Execute implements subcommands.Command.
func (*freeze) Execute(_ context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	conf, ok := args[0].(*config.Config)
	if !ok || f.NArg() != 1 {
		return util.Errorf("freeze: want one container")
	}
	c, err := loaded(conf, f)
	if err != nil {
		return util.Errorf("loading the container: %v", err)
	}
	socket, err := os.OpenFile(c.Sandbox.GetControlSocketPath(), unix.O_PATH, 0) // its path may be too long for an address
	if err != nil {
		return util.Errorf("finding the sandbox: %v", err)
	}
	defer socket.Close()
	conn, err := client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
	if err != nil {
		return util.Errorf("connecting to the sandbox: %v", err)
	}
	defer conn.Close()
	o := control.SaveOpts{
		Metadata:                       statefile.CompressionLevelNone.ToMetadata(),
		FilePayload:                    urpc.FilePayload{Files: []*os.File{os.NewFile(fdState, "state")}},
		AppMFExcludeCommittedZeroPages: true,
	}
	if err := conn.Call(boot.ContMgrCheckpoint, &o, nil); err != nil {
		return util.Errorf("saving the state: %v", err)
	}
	return subcommands.ExitSuccess
}
