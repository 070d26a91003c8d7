package postgres

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sallyport.dev/sallyport"
)

// A target is a database server to connect to.
type target struct {
	config *pgx.ConnConfig
	name   string // for people: DATABASE at HOST:PORT (user USER)
}

// allowed are the parameters of a URL. Others could load files, or turn off what
// the store needs; those of sessions are given as options=.
var allowed = map[string]bool{
	"host": true, "port": true, "user": true, "password": true, "dbname": true, "passfile": true, "connect_timeout": true,
	"sslmode": true, "sslrootcert": true, "sslcert": true, "sslkey": true, "sslsni": true, "channel_binding": true,
	"target_session_attrs": true, "search_path": true, "krbsrvname": true, "krbspn": true,
}

// parse reads a URL, completed by the environment (PGPASSWORD, PGPASSFILE, …)
// and by ~/.pgpass as libpq does. Nothing of the URL is in an error.
func parse(raw string) (*target, error) {
	bad := func(what, hint string) error {
		return &sallyport.Error{Code: sallyport.Invalid, Message: "store: " + what, Hint: hint}
	}
	const shape = "write postgres://USER@HOST[:PORT]/DATABASE[?sslmode=…]; the password is best in a file: ?passfile=PATH"
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, bad("this is not the URL of a PostgreSQL database", shape)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("the parameters of the URL are malformed", shape)
	}
	for k := range q {
		if !allowed[k] {
			return nil, bad(fmt.Sprintf("the URL has a parameter %.40q, which is not known here", k), "take it out")
		}
	}
	if err := private(q.Get("passfile")); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(secured(raw, u, q))
	if err != nil {
		return nil, bad("the URL cannot be used"+cause(err), shape)
	}
	if _, ok := q["connect_timeout"]; !ok {
		config.ConnectTimeout = 5 * time.Second
	}
	if config.Database == "" {
		return nil, bad("the URL names no database", shape)
	}
	where := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if strings.HasPrefix(config.Host, "/") {
		where = config.Host + " (port " + strconv.Itoa(int(config.Port)) + ")"
	}
	return &target{config, fmt.Sprintf("%s at %s (user %s)", config.Database, where, config.User)}, nil
}

// private refuses a file of passwords that cannot be read, or that others can
// read: the driver would go on without one.
func private(passfile string) error {
	if passfile == "" {
		return nil
	}
	st, err := os.Stat(passfile)
	if err == nil && st.Mode().Perm()&0o077 == 0 {
		var f *os.File
		if f, err = os.Open(passfile); err == nil {
			return f.Close()
		}
	}
	e := &sallyport.Error{Code: sallyport.Unavailable, Step: sallyport.Receive, Err: err,
		Message: "store: the file of ?passfile=, " + passfile + ", cannot be read",
		Hint:    "it must belong to the gateway's user: put it into the data folder; one line: HOST:PORT:DATABASE:USER:PASSWORD"}
	if err == nil {
		e.Message, e.Hint = "store: others can read the file of ?passfile=, "+passfile, "chmod 600 it, and change the password"
	}
	return e
}

// secured asks for TLS with a checked certificate where the server is on another
// machine and nobody said otherwise: the drivers' default would be to try, and
// to go on in clear text.
func secured(raw string, u *url.URL, q url.Values) string {
	if q.Has("sslmode") || os.Getenv("PGSSLMODE") != "" { //nolint:forbidigo // read by the driver too, as by every client of PostgreSQL
		return raw
	}
	hosts := q.Get("host")
	if hosts == "" {
		hosts = u.Host
	}
	mode := "disable"
	for _, h := range strings.Split(hosts, ",") {
		if !onThisMachine(h) {
			mode = "verify-full"
		}
	}
	q.Set("sslmode", mode)
	s := *u
	s.RawQuery = q.Encode()
	return s.String()
}

func onThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}

// cause is what an error of the driver says besides the URL.
func cause(err error) string {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			break
		}
		err = inner.Unwrap()
	}
	if s := err.Error(); !strings.Contains(s, "://") && !strings.Contains(s, "password=") {
		return ": " + s
	}
	return ""
}
