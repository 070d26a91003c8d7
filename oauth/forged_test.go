package oauth_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"sallyport.dev/sallyport"
)

// signed makes a token with the gateway's own key, every part of it as a
// change function wants; without one it is a good token.
func (w *world) signed(t testing.TB, change func(header, claims map[string]any)) string {
	t.Helper()
	return w.signedBy(t, w.signer(t), change)
}

func (w *world) signer(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "oauth-signing.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(ed25519.PrivateKey)
}

func (w *world) kid(t testing.TB) string {
	t.Helper()
	var set struct {
		Keys []struct{ Kid string }
	}
	if err := json.Unmarshal(w.keys.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	return set.Keys[0].Kid
}

func (w *world) parts(t testing.TB, change func(header, claims map[string]any)) string {
	now := w.now()
	header := map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": w.kid(t)}
	claims := map[string]any{
		"iss": issuer, "sub": "claude", "aud": resource, "iat": now.Unix(), "exp": now.Unix() + 600, "jti": "j",
		"client_id": "claude", "tenant": "default", "iat_us": now.UnixMicro(),
	}
	if change != nil {
		change(header, claims)
	}
	h, err1 := json.Marshal(header)
	c, err2 := json.Marshal(claims)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return b64(h) + "." + b64(c)
}

func (w *world) signedBy(t testing.TB, key ed25519.PrivateKey, change func(header, claims map[string]any)) string {
	text := w.parts(t, change)
	return text + "." + b64(ed25519.Sign(key, []byte(text)))
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func set(name string, value any) func(h, c map[string]any) {
	return func(_, c map[string]any) {
		if value == nil {
			delete(c, name)
		} else {
			c[name] = value
		}
	}
}

func header(name string, value any) func(h, c map[string]any) {
	return func(h, _ map[string]any) { h[name] = value }
}

// Every token that must not pass, most of them signed with the gateway's own
// key. The first ones are controls, which must.
func TestFO36_TokensThatMustNotPass(t *testing.T) {
	w := newWorld(t)
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := w.signer(t).Public().(ed25519.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	hmac := func(secret []byte, alg jwt.SigningMethod) string {
		text := w.parts(t, header("alg", alg.Alg()))
		sig, err := alg.Sign(text, secret)
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + b64(sig)
	}
	now := w.now().Unix()
	good := w.signed(t, nil)
	cut := strings.LastIndexByte(good, '.')
	for _, tt := range []struct {
		name, token string
		pass        bool
	}{
		{"control", good, true},
		{"control: list of audiences with ours", w.signed(t, set("aud", []string{"https://x.example", resource})), true},
		{"control: issued by a clock a little ahead", w.signed(t, func(_, c map[string]any) { c["iat"], c["iat_us"] = now+3, (now+3)*1e6 }), true},

		{"empty", "", false},
		{"no token", "hello", false},
		{"two parts", good[:cut], false},
		{"four parts", good + ".x", false},
		{"alg none", w.parts(t, header("alg", "none")) + ".", false},
		{"alg none, signed", w.signed(t, header("alg", "none")), false},
		{"alg None", w.parts(t, header("alg", "None")) + ".", false},
		{"alg missing", w.signed(t, func(h, _ map[string]any) { delete(h, "alg") }), false},
		{"no signature", good[:cut+1], false},
		{"HS256 with the public key", hmac(public, jwt.SigningMethodHS256), false},
		{"HS256 with the public key in PEM", hmac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), jwt.SigningMethodHS256), false},
		{"HS512 with nothing", hmac([]byte{}, jwt.SigningMethodHS512), false},
		{"alg ES256", w.signed(t, header("alg", "ES256")), false},
		{"another key", w.signedBy(t, stranger, nil), false},
		{"another key under its own name", w.signedBy(t, stranger, header("kid", "stranger")), false},
		{"key in the header", w.signedBy(t, stranger, header("jwk", map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(stranger.Public().(ed25519.PublicKey))})), false},
		{"no kid", w.signed(t, func(h, _ map[string]any) { delete(h, "kid") }), false},
		{"kid a number", w.signed(t, header("kid", 1)), false},
		{"kid a path", w.signed(t, header("kid", "../../dev/null")), false},
		{"critical extension", w.signed(t, header("crit", []string{"exp"})), false},
		{"key's URL", w.signed(t, header("jku", "http://evil.example/jwks")), false},
		{"type JWT", w.signed(t, header("typ", "JWT")), false},
		{"no type", w.signed(t, func(h, _ map[string]any) { delete(h, "typ") }), false},
		{"id token's type", w.signed(t, header("typ", "id+jwt")), false},

		{"another issuer", w.signed(t, set("iss", "https://evil.example")), false},
		{"issuer with a slash", w.signed(t, set("iss", issuer+"/")), false},
		{"no issuer", w.signed(t, set("iss", nil)), false},
		{"another service", w.signed(t, set("aud", "https://other.example/mcp")), false},
		{"another profile", w.signed(t, set("aud", profile)), false},
		{"no audience", w.signed(t, set("aud", nil)), false},
		{"empty audience", w.signed(t, set("aud", "")), false},
		{"empty list of audiences", w.signed(t, set("aud", []string{})), false},
		{"prefix of our audience", w.signed(t, set("aud", issuer)), false},
		{"longer than our audience", w.signed(t, set("aud", resource+"x")), false},
		{"audience with a slash", w.signed(t, set("aud", resource+"/")), false},
		{"audience in capitals", w.signed(t, set("aud", strings.ToUpper(resource))), false},
		{"audience's other port", w.signed(t, set("aud", "http://127.0.0.1:7451/mcp")), false},
		{"audience by another name", w.signed(t, set("aud", "http://localhost:7450/mcp")), false},
		{"audience a number", w.signed(t, set("aud", 7)), false},
		{"audience an object", w.signed(t, set("aud", map[string]any{"a": resource})), false},

		{"expired", w.signed(t, set("exp", now-6)), false},
		{"no expiry", w.signed(t, set("exp", nil)), false},
		{"expiry a text", w.signed(t, set("exp", "tomorrow")), false},
		{"expiry zero", w.signed(t, set("exp", 0)), false},
		{"not yet", w.signed(t, set("nbf", now+60)), false},
		{"issued in the future", w.signed(t, func(_, c map[string]any) { c["iat"], c["iat_us"] = now+60, (now+60)*1e6 }), false},
		{"no iat", w.signed(t, set("iat", nil)), false},
		{"no exact time", w.signed(t, set("iat_us", nil)), false},
		{"exact time later than iat", w.signed(t, set("iat_us", (now+3000)*1e6)), false},
		{"no subject", w.signed(t, set("sub", nil)), false},
		{"unknown subject", w.signed(t, func(_, c map[string]any) { c["sub"], c["client_id"] = "nobody", "nobody" }), false},
		{"no tenant", w.signed(t, set("tenant", nil)), false},
		{"another tenant", w.signed(t, set("tenant", "acme")), false}, // contradicts client_id
		{"unknown tenant", w.signed(t, func(_, c map[string]any) { c["tenant"], c["client_id"] = "x", "x/claude" }), false},
		{"another client", w.signed(t, set("client_id", "other")), false},
		{"no id", w.signed(t, set("jti", nil)), false},
		{"claims no object", func() string {
			text := good[:strings.IndexByte(good, '.')+1] + b64([]byte(`[]`))
			return text + "." + b64(ed25519.Sign(w.signer(t), []byte(text)))
		}(), false},

		{"line break at the end", good + "\n", false},
		{"line break in the signature", good[:len(good)-4] + "\r\n" + good[len(good)-4:], false},
		{"padding", good + "==", false},
		{"space", " " + good, false},
		{"scheme", "Bearer " + good, false},
		{"last bits", good[:len(good)-1] + nextInAlphabet(good[len(good)-1]), false},
		{"too long", w.signed(t, set("x", strings.Repeat("y", 8192))), false},
	} {
		who, err := w.door.Authenticate(context.Background(), tt.token)
		if tt.pass {
			if err != nil || who.ID != "claude" {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		wantCode(t, tt.name, err, sallyport.Unauthenticated)
		if who.ID != "" || strings.Contains(fmt.Sprint(err), w.secret) || len(tt.token) > 20 && strings.Contains(fmt.Sprint(err), tt.token) {
			t.Errorf("%s: principal %+v, error %v", tt.name, who, err)
		}
	}
}

// nextInAlphabet returns a character whose unused bits differ.
func nextInAlphabet(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[(strings.IndexByte(alphabet, c)^1)&63:][:1]
}

// Whatever is changed in a good token, it is not good any more.
func FuzzAuthenticate(f *testing.F) {
	w := newWorld(f)
	good := w.issue(f)
	f.Add(good, 3, byte(1))
	f.Add(good, len(good)-1, byte(1))
	f.Add(good[:40], 0, byte(0))
	f.Add("..", 0, byte(0))
	f.Add(good+"\n", 0, byte(0))
	f.Fuzz(func(t *testing.T, token string, at int, flip byte) {
		b := []byte(token)
		if len(b) > 0 && at >= 0 {
			b[at%len(b)] ^= flip
		}
		who, err := w.door.Authenticate(context.Background(), string(b))
		if err == nil && string(b) != good {
			t.Fatalf("passes as %+v: %q", who, b)
		}
		if err != nil && (who.ID != "" || sallyport.CodeOf(err) != sallyport.Unauthenticated) {
			t.Fatalf("%+v %v", who, err)
		}
	})
}

// Every single bit of a good token, changed.
func TestNoBitOfATokenCanChange(t *testing.T) {
	w := newWorld(t)
	good := w.issue(t)
	if _, err := w.door.Authenticate(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	for i := range len(good) * 8 {
		b := []byte(good)
		b[i/8] ^= 1 << (i % 8)
		if _, err := w.door.Authenticate(context.Background(), string(b)); err == nil {
			t.Fatalf("passes with bit %d changed", i)
		}
	}
}
