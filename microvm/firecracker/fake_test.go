package firecracker

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// This test's binary plays both programs: a jailer that does what docs/jailer.md of
// Firecracker 1.16 says, and a Firecracker that takes what its API description says,
// in the states that it says, and refuses all else. What it proves is that requests
// are of that form and order; it is not Firecracker.

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "jailer":
		played("jailer", fakeJailer())
	case "firecracker":
		played("firecracker", fakeFirecracker())
	default:
		os.Exit(m.Run())
	}
}

func played(name string, err error) {
	if err != nil {
		fmt.Println(name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// wrong is what the fake does wrong, or does not do; see its uses.
func wrong(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "wrong")) // none
	return string(b)
}

//go:embed testdata/api-1.16.json
var description []byte

// An operation is what the description says of one.
type operation struct {
	When   []string
	Status int
	Body   string
}

// A fake is a Firecracker. Its state is "fresh", "configured", "running" or "paused".
type fake struct {
	mu         sync.Mutex
	wrong      string
	state      string
	operations map[string]operation
	schema     func(name string) (*jsonschema.Schema, error)
	asked      []string
	vsock      string
	said       string // what the guest says of itself
	conns      []net.Conn
}

func newFake(wrong string) (*fake, error) {
	f := &fake{wrong: wrong, state: "fresh"}
	var d struct{ Operations map[string]operation }
	if err := json.Unmarshal(description, &d); err != nil {
		return nil, err
	}
	f.operations = d.Operations
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(description))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://fake/api.json", doc); err != nil {
		return nil, err
	}
	f.schema = func(name string) (*jsonschema.Schema, error) {
		return c.Compile("https://fake/api.json#/$defs/" + name)
	}
	return f, nil
}

func fakeFirecracker() error {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		if version, ok := strings.CutPrefix(wrong(filepath.Dir(os.Args[0])), "says: "); ok {
			fmt.Print(version)
			return nil
		}
		fmt.Print("Firecracker v1.16.1\n\n2026-06-24T00:00:00.000000000 [anonymous-instance:main] exit_code=0\n")
		return nil
	}
	if len(os.Args) != 4 || os.Args[2] != "--api-sock" || os.Getuid() == 0 || os.Getpid() != 1 {
		return fmt.Errorf("arguments %q, uid %d, pid %d", os.Args, os.Getuid(), os.Getpid())
	}
	f, err := newFake(wrong("."))
	if err != nil {
		return err
	}
	if f.wrong == "no API" {
		return fmt.Errorf("a failure at the start")
	}
	l, err := net.Listen("unix", strings.TrimPrefix(os.Args[3], "/"))
	if err != nil {
		return err
	}
	return (&http.Server{Handler: f, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// ServeHTTP is the API.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.Method + " " + r.URL.Path
	f.asked = append(f.asked, name)
	if how, ok := strings.CutPrefix(f.wrong, name+" "); ok {
		f.misbehave(w, how)
		return
	}
	if ok, _ := path.Match("/drives/*", r.URL.Path); ok {
		name = r.Method + " /drives/{drive_id}"
	}
	o, ok := f.operations[name]
	if !ok {
		refuse(w, 400, "Invalid request method and/or path: "+name+".")
		return
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 51200))
	if err != nil {
		refuse(w, 413, err.Error())
		return
	}
	if o.Body != "" {
		if err := f.valid(o.Body, b); err != nil {
			refuse(w, 400, "An error occurred when deserializing the json body of a request: "+err.Error())
			return
		}
	}
	if !contained(o.When, f.state) {
		refuse(w, 400, "The requested operation is not supported when the microVM is "+f.state+".")
		return
	}
	if err := f.act(name, b); err != nil {
		refuse(w, 400, err.Error())
		return
	}
	w.WriteHeader(o.Status)
}

func contained(all []string, x string) bool {
	for _, s := range all {
		if s == x {
			return true
		}
	}
	return false
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"fault_message": message}) // the client may be gone
}

func (f *fake) misbehave(w http.ResponseWriter, how string) {
	switch how {
	case "dies":
		fmt.Println("thread 'fc_api' panicked")
		os.Exit(148)
	case "is silent":
		time.Sleep(time.Minute)
	case "says too much":
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20)) // the client may be gone
	case "sends elsewhere":
		w.Header().Set("Location", "http://localhost/version")
		w.WriteHeader(307)
	case "says nonsense":
		w.WriteHeader(500)
		_, _ = w.Write([]byte("\x1b[31mnot JSON")) // the client may be gone
	default:
		refuse(w, 400, how)
	}
}

func (f *fake) valid(name string, body []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	s, err := f.schema(name)
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// act does what a request is for, as far as it can be seen from outside.
func (f *fake) act(name string, body []byte) error {
	var b struct {
		Kernel  string `json:"kernel_image_path"`
		Initrd  string `json:"initrd_path"`
		Disk    string `json:"path_on_host"`
		Fixed   bool   `json:"is_read_only"`
		UDS     string `json:"uds_path"`
		State   string `json:"state"`
		Saved   string `json:"snapshot_path"`
		Memory  string `json:"mem_file_path"`
		Backend struct {
			Path string `json:"backend_path"`
		} `json:"mem_backend"`
		Vsock struct {
			UDS string `json:"uds_path"`
		} `json:"vsock_override"`
	}
	if err := json.Unmarshal(body, &b); err != nil && len(body) > 0 {
		return err
	}
	switch name {
	case "PUT /boot-source", "PUT /drives/{drive_id}":
		f.state = "configured"
		if b.Disk != "" && !b.Fixed {
			return errors.New("the disk cannot be opened for writing")
		}
		for _, file := range []string{b.Kernel, b.Initrd, b.Disk} {
			if err := readable(file); err != nil {
				return err
			}
		}
	case "PUT /vsock":
		f.state, f.vsock = "configured", b.UDS
	case "PUT /machine-config", "PUT /entropy":
		f.state = "configured"
	case "PUT /actions":
		f.state, f.said = "running", "booted"
		return f.listen(f.vsock)
	case "PATCH /vm":
		f.state = map[string]string{"Paused": "paused", "Resumed": "running"}[b.State]
	case "PUT /snapshot/create":
		f.forget()
		if err := os.WriteFile(b.Memory, []byte(f.said), 0o600); err != nil {
			return err
		}
		return os.WriteFile(b.Saved, []byte("devices"), 0o600)
	case "PUT /snapshot/load":
		memory, err := os.ReadFile(b.Backend.Path)
		if err != nil {
			return err
		}
		if state, err := os.ReadFile(b.Saved); err != nil || string(state) != "devices" {
			return fmt.Errorf("state %q: %w", state, err)
		}
		f.state, f.said = "paused", "restored of "+string(memory)
		return f.listen(b.Vsock.UDS)
	}
	return nil
}

// readable opens a file of the jail, and makes sure that it cannot be changed.
func readable(file string) error {
	if file == "" {
		return nil
	}
	if _, err := os.ReadFile(file); err != nil {
		return err
	}
	if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil {
		f.Close()
		return fmt.Errorf("%s can be written to", file)
	}
	return nil
}

// listen is the vsock device, and the guest's agent behind it.
func (f *fake) listen(uds string) error {
	l, err := net.Listen("unix", uds)
	if err != nil {
		return err
	}
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.agent(c, n)
		}
	}()
	return nil
}

// agent answers each line with what the guest is, and the line. The first time
// nobody listens yet.
func (f *fake) agent(c net.Conn, n int) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil || line != "CONNECT 1024\n" || n == 0 || f.wrong == "no agent" {
		return
	}
	if f.wrong == "another protocol" {
		fmt.Fprint(c, "HELLO\n")
		return
	}
	f.mu.Lock()
	running, said := f.state == "running", f.said
	f.conns = append(f.conns, c)
	f.mu.Unlock()
	if !running {
		return
	}
	fmt.Fprintf(c, "OK %d\n", 1<<30+n)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprintf(c, "%s: %s", said, line)
	}
}

// forget is what a guest does with its connections when it is saved.
func (f *fake) forget() {
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}
