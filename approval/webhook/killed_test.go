package webhook_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/approval/webhook"
)

const childEnv = "SALLYPORT_TEST_OUTBOX"

// TestMain lets the test binary be a gateway's outbox in a process of its own.
func TestMain(m *testing.M) {
	dir, url, ok := strings.Cut(os.Getenv(childEnv), "|")
	if !ok {
		os.Exit(m.Run())
	}
	outboxProcess(dir, url)
}

// outboxProcess sends from the store in dir until it is killed.
func outboxProcess(dir, url string) {
	t := &testing.T{}
	w := &world{T: t, dir: dir, time: time.Now()}
	w.db = openStore(t, dir, time.Now)
	b := webhook.NewOutbox("t", []webhook.Hook{hook("chat", url)}, "", w.db, w.db, childSecrets(), mask, webhook.Options{Poll: 5 * time.Millisecond, First: time.Millisecond})
	b.Run(context.Background())
}

func childSecrets() vault { return vault{"out": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} }

// Killed at any moment, also between a receiver's yes and the note of it, the
// outbox loses nothing: what was not noted comes again under the same id.
func TestKilledOutboxLosesNothing(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, nil)
	r.Start()
	const tickets = 30
	start := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+w.dir+"|"+r.URL)
		cmd.Stderr = os.Stderr
		w.must(cmd.Start())
		return cmd
	}
	cmd := start()
	w.eventually("the first process looks", func() bool {
		_, at, err := w.db.Swept(t.Context(), "t", "chat")
		return err == nil && !at.IsZero()
	})
	want := map[string]bool{}
	for i := range tickets {
		tk := w.ticket(fmt.Sprintf("k%d", i), critical())
		want["msg_"+tk.ID+"_opened"] = true
		if i%6 == 5 {
			n := len(r.all())
			w.eventually("something is sent", func() bool { return len(r.all()) > n || len(r.ids()) == len(want) })
			cmd.Process.Kill()
			cmd.Wait()
			cmd = start()
		}
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	// A message that was claimed by a killed process is due again after its
	// lease of a minute: the test takes the lease away instead of waiting.
	w.eventually("all of them", func() bool {
		all, err := w.db.ClaimNotices(t.Context(), "t", "chat", time.Now().Add(time.Hour), -time.Hour, 100)
		w.must(err)
		_ = all
		return len(r.ids()) == tickets
	})
	for _, id := range r.ids() {
		if !want[id] {
			t.Errorf("told what did not happen: %s", id)
		}
	}
	for _, g := range r.all() {
		at, _ := strconv.ParseInt(g.Get("Webhook-Timestamp"), 10, 64)
		if g.Get("Webhook-Signature") != signed(childSecrets()["out"], g.Get("Webhook-Id"), at, g.body) {
			t.Errorf("the signature of %s is wrong", g.Get("Webhook-Id"))
		}
	}
}
