package sandbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/sandboxd/sandboxpb"
	"sallyport.dev/sallyport/tier/payload"
)

// A Script is what a program in a sandbox may call while it runs. (script)
type Script interface {
	// Functions are what the launcher makes the program's functions of: JSON.
	Functions() json.RawMessage

	// Hear takes what the program says, cut anywhere. It never waits.
	Hear(b []byte)

	// Answers gives what is to be said to the program, in order.
	Answers() <-chan []byte

	// Stopped is closed when the program must end.
	Stopped() <-chan struct{}

	// Close takes no more calls, waits for those that were begun, and tells what was
	// called and why the program had to end, if it had to. It may be repeated.
	Close() (calls []sallyport.ScriptCall, stopped *sallyport.Error, untrusted bool)
}

// OpenScript opens a Script for a job that may call the named tools.
type OpenScript func(ctx context.Context, job sallyport.Job, tools []string) (Script, error)

// Scripts lets programs call tools. It is called once, before any job runs.
func (b *Backend) Scripts(open OpenScript) { b.scripts = open }

// launcher makes functions of what a program may call, and becomes the program.
//
//go:embed launcher.js
var launcher []byte

// Names of the launcher and of what it reads. It deletes both.
const (
	launcherFile  = ".tools.js"
	functionsFile = ".tools.json"
)

// script runs a command that may call tools.
func (b *Backend) script(ctx context.Context, job sallyport.Job, c Command, tools []string) (sallyport.Output, error) {
	if b.scripts == nil {
		return sallyport.Output{}, refuse(sallyport.Unavailable, "leave tools out", "scripts cannot call tools here")
	}
	for _, name := range []string{launcherFile, functionsFile} {
		if _, taken := c.Files[name]; taken {
			return sallyport.Output{}, refuse(sallyport.Invalid, "give the file another name", "files: %q is where the script finds its tools", name)
		}
	}
	s, err := b.scripts(ctx, job, tools)
	if err != nil {
		return sallyport.Output{}, err
	}
	defer s.Close()
	functions, err := json.Marshal(map[string]any{"main": c.Argv[1], "socket": payload.TalkSocket, "own": s.Functions()})
	if err != nil {
		return sallyport.Output{}, err
	}
	c.Files[launcherFile], c.Files[functionsFile] = launcher, functions
	c.Argv = []string{c.Argv[0], launcherFile}
	c.Talk = s
	out, err := b.Exec(ctx, c)
	calls, stopped, untrusted := s.Close()
	if err != nil && (stopped == nil || ctx.Err() != nil) {
		return sallyport.Output{}, err
	}
	if err != nil { // it was stopped before it could tell anything
		out = Outcome{ExitCode: 137, Signal: "SIGKILL", Tier: job.Tier}
	}
	return presentScript(job, out, calls, stopped, untrusted)
}

// stopWithin is how long a program that was stopped may take to tell how far it came.
const stopWithin = 10 * time.Second

// converse has the host run a request, and lets its program talk with s.
func (b *Backend) converse(ctx context.Context, req *sandboxpb.RunRequest, s Script) (*sandboxpb.RunReply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := b.api.Converse(ctx)
	if err != nil {
		return nil, err
	}
	// What fails to be sent is told by Recv.
	_ = stream.Send(&sandboxpb.ConverseRequest{Message: &sandboxpb.ConverseRequest_Run{Run: req}})
	go speak(ctx, cancel, stream, s)
	for {
		e, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		switch m := e.Message.(type) {
		case *sandboxpb.RunEvent_Heard:
			s.Hear(m.Heard)
		case *sandboxpb.RunEvent_Done:
			return m.Done, nil
		}
	}
}

func speak(ctx context.Context, cancel context.CancelFunc, stream grpc.BidiStreamingClient[sandboxpb.ConverseRequest, sandboxpb.RunEvent], s Script) {
	for {
		select {
		case <-s.Stopped():
			late := time.AfterFunc(stopWithin, cancel)
			defer late.Stop()
			_ = stream.Send(&sandboxpb.ConverseRequest{Message: &sandboxpb.ConverseRequest_Stop{Stop: true}})
			<-ctx.Done()
			return
		case b := <-s.Answers():
			if stream.Send(&sandboxpb.ConverseRequest{Message: &sandboxpb.ConverseRequest_Said{Said: b}}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// presentScript makes the result of a script: that of its run, with what it called.
// Its key is used up by a run that came to its own good end; any other may be made
// again, and does nothing twice.
func presentScript(job sallyport.Job, o Outcome, calls []sallyport.ScriptCall, stopped *sallyport.Error, untrusted bool) (sallyport.Output, error) {
	f := factsOf(job, o)
	f.Calls = calls
	if f.Calls == nil {
		f.Calls = []sallyport.ScriptCall{}
	}
	all := contentOf(job, o)
	isError := o.KilledBy != ""
	if stopped != nil {
		isError = true
		f.Code, f.Message, f.Hint, f.Ticket = stopped.Code, stopped.Message, stopped.Hint, stopped.Ticket
		all = append(all, content{"text", fmt.Sprintf("%s: %s. %s", stopped.Code, stopped.Message, stopped.Hint)})
	}
	result := map[string]any{"content": all, "structuredContent": f, "isError": isError}
	if untrusted {
		result["_meta"] = map[string]any{sallyport.MetaUntrusted: true}
	}
	b, err := json.Marshal(result)
	return sallyport.Output{Content: b, IsError: isError, Again: isError || o.ExitCode != 0, Connections: o.Connections, Receipt: o.Receipt}, err
}

// scriptTools reads the argument tools.
func scriptTools(raw json.RawMessage) ([]string, error) {
	var names []string
	if json.Unmarshal(raw, &names) != nil || len(names) == 0 {
		return nil, refuse(sallyport.Invalid, `pass names of tools, such as ["memory__*"]`, "tools is no list of names")
	}
	return names, nil
}

// mayCall says why arguments cannot name tools, or nil.
func (a arguments) mayCall(job sallyport.Job) error {
	switch {
	case len(a.tools) == 0:
		return nil
	case len(job.Egress) > 0:
		return refuse(sallyport.Invalid, `pass "network": "none", or leave tools out`, "tools: what calls them reaches nothing else, so that it can be run again")
	case len(job.Tool.Manifest.Secrets) > 0:
		return refuse(sallyport.Invalid, "leave tools out", "tools: this tool is given secrets, and what calls tools is given none")
	case job.Tool.Code.Language != "javascript":
		return refuse(sallyport.Invalid, "use run_javascript", "tools: only JavaScript can call them")
	case a.session != "":
		return refuse(sallyport.Invalid, "leave session or tools out", "tools: what calls them begins afresh, so that it can be run again; in a session it would not")
	}
	return nil
}
