package held

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/httponce"
)

// Path is where a gateway takes what others pass on to it.
const Path = "/internal/held"

// maxPassed bounds what is passed on, in bytes.
const maxPassed = 16 << 20

// Peers are the gateways of the same database. What one passes on to another is
// sealed under a key that only they have: nobody else can have a call go on, and
// nobody in between reads or repeats anything (a turn of a call is good once).
type Peers struct {
	// Address says where a gateway is: HOST:PORT, "" if it is not there any more.
	Address func(ctx context.Context, replica string) (string, error)
	Client  *http.Client
	key     []byte
}

// NewPeers returns peers; key is that of Options.
func NewPeers(key []byte, address func(ctx context.Context, replica string) (string, error)) *Peers {
	return &Peers{Address: address, key: key, Client: httponce.Client(&http.Transport{DisableCompression: true, IdleConnTimeout: 30 * time.Second})}
}

// passed is what one gateway tells another: a client came back, and the path let
// it go on.
type passed struct {
	Call       [16]byte
	Turn       uint64
	Owner      string
	Binding    string
	Answers    answers
	NeedsHuman bool
	Tasks      bool
	Visit      *sallyport.Visit // in place of the rest, but Call
	Stop       string           // in place of all the rest: the id of a call to cancel
}

// reply is what comes of it.
type reply struct {
	Result sallyport.Result
	Error  *refusal
}

type refusal struct {
	Code                          sallyport.Code
	Step                          sallyport.Step
	Message, Hint, Ticket, CallID string
	RetryAfter                    time.Duration
}

// restored is the error again, nil if there was none.
func (r *refusal) restored() error {
	if r == nil {
		return nil
	}
	return &sallyport.Error{Code: r.Code, Step: r.Step, Message: r.Message, Hint: r.Hint, Ticket: r.Ticket, CallID: r.CallID, RetryAfter: r.RetryAfter}
}

func (p *Peers) resume(ctx context.Context, st state, r sallyport.Return) (sallyport.Result, error) {
	body, err := json.Marshal(passed{Call: st.call, Turn: st.turn, Owner: r.Owner, Binding: r.Binding, Answers: r.Answers, NeedsHuman: r.NeedsHuman, Tasks: r.Tasks})
	if err != nil {
		return sallyport.Result{}, err
	}
	out, sent, err := p.pass(ctx, st.replica, body)
	switch {
	case ctx.Err() != nil:
		return sallyport.Result{}, ctx.Err()
	case errors.Is(err, errNotThere):
		return sallyport.Result{}, gone(r.Mutating)
	case errors.Is(err, errLookup):
		return sallyport.Result{}, err
	case err != nil && !sent:
		return sallyport.Result{}, &sallyport.Error{
			Code: sallyport.Unavailable, Step: sallyport.Admit, RetryAfter: 5 * time.Second, Err: err,
			Message: "the gateway that holds the call cannot be reached", Hint: "come back again with the same requestState",
		}
	case err != nil:
		e, _ := errors.AsType[*sallyport.Error](gone(r.Mutating))
		e.Err = err
		return sallyport.Result{}, e
	case out.Error != nil:
		return sallyport.Result{}, out.Error.restored()
	}
	return out.Result, nil
}

// visit passes on what somebody wants of a call that another gateway holds.
func (p *Peers) visit(ctx context.Context, l sallyport.Lasting, v sallyport.Visit) ([]sallyport.Question, error) {
	in := passed{Stop: l.CallID}
	if l.Held != nil {
		in = passed{Call: [16]byte(l.Held), Visit: &v}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	out, _, err := p.pass(ctx, l.Replica, body)
	if err != nil {
		return nil, err
	}
	return out.Result.Questions, out.Error.restored()
}

var (
	errNotThere = errors.New("that gateway is not there any more")
	errLookup   = errors.New("where that gateway is cannot be looked up")
)

// pass tells another gateway something. sent is false where it certainly has not got it.
func (p *Peers) pass(ctx context.Context, replica string, body []byte) (out reply, sent bool, err error) {
	address, err := p.Address(ctx, replica)
	switch {
	case err != nil:
		return out, false, fmt.Errorf("%w: %w", errLookup, err)
	case address == "":
		return out, false, errNotThere
	}
	nonce := rand.Text()
	sent, answer, err := p.post(ctx, "http://"+address+Path, nonce, p.seal(body, "to "+replica, nonce))
	if err == nil {
		if answer, err = p.open(answer, "from "+replica, nonce); err == nil {
			err = json.Unmarshal(answer, &out)
		}
	}
	return out, sent, err
}

// A request names a nonce, and shows by a code for it that its sender has the key,
// before anybody reads its body.
const (
	headerNonce = "Sallyport-Nonce"
	headerCode  = "Sallyport-Code"
)

func (p *Peers) code(nonce string) string {
	m := hmac.New(sha256.New, p.key)
	m.Write([]byte("sallyport replicas nonce v1\x00" + nonce))
	return hex.EncodeToString(m.Sum(nil))
}

// post sends a sealed body. sent is false where the other one certainly has not got it.
func (p *Peers) post(ctx context.Context, url, nonce string, body []byte) (sent bool, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return false, nil, err
	}
	httponce.SetBody(req, body)
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set(headerNonce, nonce)
	req.Header.Set(headerCode, p.code(nonce))
	resp, sent, err := httponce.Do(p.Client, req)
	if err != nil {
		return sent, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxPassed))
	if err == nil && resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= http.StatusInternalServerError, nil, fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return true, answer, err
}

func (p *Peers) associated(way, nonce string) []byte {
	return []byte("sallyport replicas v1\x00" + way + "\x00" + nonce)
}

func (p *Peers) seal(plain []byte, way, nonce string) []byte {
	aead, err := chacha20poly1305.NewX(p.key)
	if err != nil {
		return nil // New checked the key
	}
	head := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(plain)+aead.Overhead())
	rand.Read(head)
	return aead.Seal(head, head, plain, p.associated(way, nonce))
}

func (p *Peers) open(box []byte, way, nonce string) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(p.key)
	if err != nil {
		return nil, err
	}
	if len(box) < chacha20poly1305.NonceSizeX {
		return nil, errors.New("it is too short")
	}
	return aead.Open(nil, box[:chacha20poly1305.NonceSizeX], box[chacha20poly1305.NonceSizeX:], p.associated(way, nonce))
}

// ServeHTTP takes what another gateway passes on. To anybody else it is a page that
// is not there.
func (c *Calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, nonce := c.o.Peers, r.Header.Get(headerNonce)
	if p == nil || r.Method != http.MethodPost || len(nonce) > 64 || !hmac.Equal([]byte(p.code(nonce)), []byte(r.Header.Get(headerCode))) {
		http.NotFound(w, r)
		return
	}
	box, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPassed))
	var in passed
	if err == nil {
		var plain []byte
		if plain, err = p.open(box, "to "+c.o.Replica, nonce); err == nil {
			err = json.Unmarshal(plain, &in)
		}
	}
	if err != nil {
		http.NotFound(w, r)
		return
	}
	var out reply
	switch {
	case in.Stop != "":
		err = c.stop(in.Stop)
	case in.Visit != nil:
		out.Result.Questions, err = c.visit(in.Call, *in.Visit)
	default:
		out.Result, err = c.take(r.Context(), in.Call, in.Turn, sallyport.Return{Owner: in.Owner, Binding: in.Binding, Answers: in.Answers, NeedsHuman: in.NeedsHuman, Tasks: in.Tasks})
	}
	if err != nil {
		out.Error = refusalOf(err)
	}
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "cannot be told", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(p.seal(body, "from "+c.o.Replica, nonce))
}

func refusalOf(err error) *refusal {
	e, ours := errors.AsType[*sallyport.Error](err)
	if !ours {
		e = &sallyport.Error{Code: sallyport.Internal, Step: sallyport.Execute, Message: "internal error"}
	}
	return &refusal{e.Code, e.Step, e.Message, e.Hint, e.Ticket, e.CallID, e.RetryAfter}
}
