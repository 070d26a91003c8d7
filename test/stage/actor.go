package stage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Server is an entry under servers in sallyport.yaml.
type Server struct {
	Command   string            `json:"command,omitempty"`
	Args      []string          `json:"args,omitempty"`
	URL       string            `json:"url,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Isolation string            `json:"isolation,omitempty"`
	MaxLine   string            `json:"max_line,omitempty"`
	Timeout   string            `json:"timeout,omitempty"`
}

// Servers writes the servers part of a sallyport.yaml.
// Those that name no isolation are programs of this host: they get isolation uid.
func Servers(all map[string]Server) string {
	all = maps.Clone(all)
	for name, s := range all {
		if s.Command != "" && s.Isolation == "" {
			s.Isolation = "uid"
			all[name] = s
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings marshal
	}
	var y strings.Builder // YAML wants control characters escaped that JSON may leave
	for _, r := range "servers: " + string(b) + "\n" {
		if r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&y, `\u%04x`, r)
			continue
		}
		y.WriteRune(r)
	}
	return y.String()
}

// Actor is an upstream server that this test program plays; self is a path
// from Self. Tools do what their names say, also what no server should do: see
// tools below. With more tools (definitions, a JSON array), those are listed in
// their stead, and a call answers "NAME/TOOL".
func Actor(self, name string, more ...string) Server {
	env := map[string]string{envRole: "actor", "ACTOR_NAME": name}
	for _, kv := range more {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return Server{Command: self, Env: env}
}

const envRole = "STAGE_ROLE"

// role makes this process one of the players, if it was started as one.
func role() (played bool) {
	switch os.Getenv(envRole) {
	case "actor":
		(&actor{name: os.Getenv("ACTOR_NAME"), calls: map[string]string{}}).play()
	case "ledger":
		keepLedger()
	default:
		return false
	}
	return true
}

type actor struct {
	name string
	mu   sync.Mutex // guards standard output

	honoured sync.Map          // keys of honour
	calls    map[string]string // arguments of each call, by request id
}

type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments json.RawMessage
		Meta      struct {
			ProgressToken json.RawMessage
			Key           string `json:"dev.sallyport/idempotencyKey"`
		} `json:"_meta"`
		RequestID json.RawMessage
	}
}

func (a *actor) play() {
	if os.Getenv("ACTOR_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
		defer time.Sleep(time.Hour)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, "bad message:", err)
		}
		if m.Method == "notifications/cancelled" && os.Getenv("ACTOR_LEDGER") != "" {
			tell("cancelled " + a.name + " " + a.calls[string(m.Params.RequestID)])
		}
		if m.ID == nil || m.Method == "" {
			continue
		}
		switch m.Method {
		case "initialize":
			a.result(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"actor \u001b]0;title\u0007\u009b2J","version":"1"}}`)
		case "tools/list":
			a.result(m, `{"tools":`+definitions()+`}`)
		case "tools/call":
			a.calls[string(m.ID)] = string(m.Params.Arguments)
			if m.Params.Name == "exit" {
				a.call(m) // here, so that it certainly reads nothing more
			}
			go a.call(m)
		default:
			a.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"no such method"}}`)
		}
	}
}

func definitions() string {
	if own := os.Getenv("ACTOR_TOOLS"); own != "" {
		return own
	}
	var b bytes.Buffer
	for name := range tools {
		fmt.Fprintf(&b, `,{"name":%q,"description":"does it","inputSchema":{"type":"object"}}`, name)
	}
	b.WriteByte(']')
	b.Bytes()[0] = '['
	return b.String()
}

func (a *actor) write(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = os.Stdout.WriteString(line + "\n") // nobody reads: the end comes soon
}

func (a *actor) result(m message, result string) {
	a.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
}

func (a *actor) text(m message, text string) {
	a.result(m, `{"content":[{"type":"text","text":`+quote(text)+`}]}`)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string marshals
	}
	return string(b)
}

func (a *actor) call(m message) {
	var in in
	if err := json.Unmarshal(m.Params.Arguments, &in); err != nil && m.Params.Name != "echo" {
		a.text(m, "bad arguments: "+err.Error())
		return
	}
	do := tools[m.Params.Name]
	if do == nil || os.Getenv("ACTOR_TOOLS") != "" {
		a.text(m, a.name+"/"+m.Params.Name)
		return
	}
	do(a, m, in)
}

// in are the arguments of all tools.
type in struct {
	Text  string
	Path  string
	N     int
	Reply string
}

var tools = map[string]func(a *actor, m message, in in){
	// echo gives back the very bytes of its arguments.
	"echo": func(a *actor, m message, _ in) {
		raw := string(m.Params.Arguments)
		a.result(m, `{"content":[{"type":"text","text":`+quote(raw)+`}],"structuredContent":`+raw+`}`)
	},
	// pay and transfer have an effect: a line in the ledger. They answer after N ms,
	// and not before there is a file at Path.
	"pay":      (*actor).pay,
	"transfer": (*actor).pay,
	// hang has an effect and never answers.
	"hang": func(a *actor, m message, _ in) {
		tell(string(m.Params.Arguments))
	},
	// honour acts once for each idempotency key. Of the first call with a key it
	// never tells how it ended, if N is not 0.
	"honour": func(a *actor, m message, in in) {
		if _, again := a.honoured.LoadOrStore(m.Params.Meta.Key, true); again {
			a.text(m, "honoured before: "+m.Params.Meta.Key)
			return
		}
		tell(string(m.Params.Arguments))
		if in.N == 0 {
			a.text(m, "honoured: "+m.Params.Meta.Key)
		}
	},
	// wait answers after N ms, with progress on the way.
	"wait": func(a *actor, m message, in in) {
		for i := range 4 {
			time.Sleep(time.Duration(in.N) * time.Millisecond / 4)
			if t := m.Params.Meta.ProgressToken; t != nil {
				a.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":4}}`, t, i+1))
			}
		}
		a.text(m, "waited")
	},
	"environ": func(a *actor, m message, _ in) {
		b, err := json.Marshal(os.Environ())
		if err != nil {
			panic(err) // strings marshal
		}
		a.text(m, string(b))
	},
	// who says which user it is, and what it can read at Path.
	"who": func(a *actor, m message, in in) {
		b, err := os.ReadFile(in.Path)
		entries, _ := os.ReadDir(in.Path)
		a.text(m, fmt.Sprintf(`{"uid":%d,"pid":%d,"bytes":%d,"entries":%d,"error":%s}`, os.Getuid(), os.Getpid(), len(b), len(entries), quote(fmt.Sprint(err))))
	},
	// spawn leaves a child behind that outlives its parent.
	"spawn": func(a *actor, m message, _ in) {
		cmd := exec.Command("sleep", "3600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			a.text(m, err.Error())
			return
		}
		a.text(m, fmt.Sprint(cmd.Process.Pid))
	},
	"exit": func(a *actor, m message, _ in) {
		a.text(m, "goodbye")
		os.Exit(0)
	},
	// half dies in the middle of its answer.
	"half": func(_ *actor, m message, _ in) {
		tell("half")
		fmt.Fprint(os.Stderr, "about to fail \x1b[31m\n")
		_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"cont`)
		os.Exit(1)
	},
	// size answers with a line of N bytes; endless with one that does not end.
	"size": func(a *actor, m message, in in) {
		head, tail := `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"`, `"}]}}`
		a.write(head + strings.Repeat("x", max(0, in.N-len(head)-len(tail))) + tail)
	},
	"endless": func(a *actor, _ message, _ in) {
		chunk := strings.Repeat("x", 1<<20)
		for {
			if _, err := os.Stdout.WriteString(chunk); err != nil {
				return
			}
		}
	},
	// raw answers with Reply, in which ID stands for the request's.
	"raw": func(a *actor, m message, in in) {
		a.write(strings.ReplaceAll(in.Reply, "ID", string(m.ID)))
	},
	"say": func(a *actor, m message, in in) { a.text(m, in.Text) },
	"fail": func(a *actor, m message, in in) {
		a.result(m, `{"isError":true,"content":[{"type":"text","text":`+quote(in.Text)+`}]}`)
	},
	"refuse": func(a *actor, m message, in in) {
		a.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32000,"message":` + quote(in.Text) + `}}`)
	},
}

func (a *actor) pay(m message, in in) {
	tell(string(m.Params.Arguments))
	time.Sleep(time.Duration(in.N) * time.Millisecond)
	for in.Path != "" {
		if _, err := os.Stat(in.Path); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	a.text(m, "paid "+string(m.Params.Arguments))
}

// Manifests are the tool manifests with which an actor's tools are judged: echo
// and its like change nothing, pay acts, transfer and hang need a human.
func (g *Gateway) Manifests(server string) {
	g.t.Helper()
	for name := range tools {
		rule := "read_only: true"
		switch name {
		case "pay", "half", "spawn", "exit", "honour":
			continue // undeclared: taken to change things
		case "transfer":
			rule = "risk: critical"
		case "hang":
			rule = "risk: high"
		}
		g.Write("tools/"+server+"_"+name+".yaml", fmt.Sprintf("server: %s\ntool: %s\n%s\n", server, name, rule))
	}
}

// Players are the processes of a program, such as a copy from Self.
func Players(t testing.TB, program string) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if exe, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil && strings.TrimSuffix(exe, " (deleted)") == program {
			pids = append(pids, e.Name())
		}
	}
	return pids
}
