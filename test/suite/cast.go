package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

// A Play is one scenario in which the suite is the server: a client at URL is to
// do what the scenario of that name is about.
type Play struct {
	Scenario string
	URL      string          // of the suite's server
	Version  string          // of the protocol
	Context  json.RawMessage // what the suite has to say to the client
}

// envPrompter is where a program that the suite starts gets its part from.
const envPrompter = "SUITE_PROMPTER"

// Main is stage.Main for packages that call Client: the suite starts the test
// program itself, which then only says so to the running test.
func Main(m *testing.M) {
	if prompter := os.Getenv(envPrompter); prompter != "" {
		if err := prompt(prompter); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	stage.Main(m)
}

// prompt has the test play the scenario that this process was started for.
func prompt(prompter string) error {
	p := Play{
		Scenario: os.Getenv("MCP_CONFORMANCE_SCENARIO"), Version: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"),
		URL: os.Args[len(os.Args)-1], Context: json.RawMessage(os.Getenv("MCP_CONFORMANCE_CONTEXT")),
	}
	if len(p.Context) == 0 {
		p.Context = json.RawMessage("null")
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, prompter, strings.NewReader(string(b)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", said)
	}
	return err
}

// Client holds a client against a revision's requirements. The suite starts all
// scenarios at once; play plays them one at a time, so that those which measure
// time are not in each other's way. Its error is the exit of the client.
func (s Suite) Client(revision string, play func(Play) error) Result {
	s.t.Helper()
	var turn sync.Mutex
	prompter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p Play
		err := json.NewDecoder(r.Body).Decode(&p)
		if err == nil {
			turn.Lock()
			err = play(p)
			turn.Unlock()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer prompter.Close()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Setenv(envPrompter, prompter.URL) // the suite passes its environment on
	return s.run(revision, "client", "--command", self, "--timeout", "300000")
}
