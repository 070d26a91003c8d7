package config

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport.dev/sallyport"
)

const (
	agentName      = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`
	serverName     = `^[A-Za-z0-9]([A-Za-z0-9-]|_[A-Za-z0-9-]){0,23}$`
	profileName    = `^[a-z0-9][a-z0-9-]{0,31}$`
	envName        = `^[A-Za-z_][A-Za-z0-9_]*$`
	headerName     = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
	serverNameHint = "use letters, digits, hyphens and single underscores, at most 24"
)

// check judges what decoding cannot: values, references and paths. It makes
// paths absolute.
func (d *decoder) check(c *Config, dir string) {
	d.hostPort("listen", c.Listen, true)
	if c.Advertise != "" {
		d.hostPort("advertise", c.Advertise, false)
	}
	d.store(&c.Store, dir)
	d.each("hosts", c.Hosts, func(key, host string) {
		d.name(key, "host", host, `^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`, "write the name, and a port if only that one is meant: gw.example.com:8443")
	})
	d.proxied(c)
	d.each("origins", c.Origins, func(key, origin string) {
		d.name(key, "origin", origin, `^https?://[A-Za-z0-9.:\[\]-]+$`, "write it as a browser sends it: https://console.example.com")
	})
	for _, p := range []struct {
		key  string
		path *string
	}{{"data", &c.Data}, {"policies", &c.Policies}, {"tools", &c.Tools}, {"sagas.plans", &c.Sagas.Plans}, {"secrets.keys", &c.Secrets.Keys}, {"audit.heads", &c.Audit.Heads}} {
		d.path(p.key, p.path, dir)
	}
	var roles []string
	for i, name := range sortedKeys(c.Agents) {
		key := "agents." + name
		d.alike(key, "agent", name, sortedKeys(c.Agents)[:i])
		d.name(key, "agent", name, agentName, "use letters, digits, dots, hyphens and underscores, at most 64")
		d.each(key+".roles", c.Agents[name].Roles, func(key, role string) {
			d.name(key, "role", role, agentName, "use letters, digits, dots, hyphens and underscores, at most 64")
			d.alike(key, "role", role, roles)
			roles = append(roles, role)
		})
	}
	for _, name := range sortedKeys(c.Servers) {
		key := "servers." + name
		d.name(key, "server", name, serverName, serverNameHint)
		s := c.Servers[name]
		d.server(key, &s, dir)
		c.Servers[name] = s
	}
	d.profiles(c)
	d.deciding(c)
	d.sandbox(&c.Sandbox, dir)
	d.each("egress.private", c.Egress.Private, d.private)
	d.numbers(c)
}

// server checks one upstream; key is "" for one that stands alone.
func (d *decoder) server(key string, s *Server, dir string) {
	place := func(k string) string { return join(key, k) }
	switch {
	case s.Command == "" && s.URL == "" && s.OpenAPI == "":
		d.fail(d.places[key], "give a command to start it, the url of a running one, or the openapi document of an HTTP API", "%s has neither command nor url nor openapi", named(key))
		return
	case s.Command != "" && s.URL != "":
		d.fail(d.places[place("url")], "keep one of the two", "%s has both command and url", named(key))
		return
	case s.OpenAPI != "" && s.Command+s.URL != "":
		d.fail(d.places[place("openapi")], "keep one of them", "%s has openapi beside a command or a url", named(key))
		return
	case s.Command != "":
		d.stray(key, "url", "headers", "oauth", "base", "auth", "token_url")
		d.command(place("command"), s, dir)
	case s.OpenAPI != "":
		d.stray(key, append(ofCommands, "oauth")...)
		d.api(key, s, dir)
	default:
		d.stray(key, append(ofCommands, "base", "auth", "token_url")...)
		d.endpoint(place("url"), s.URL)
		d.oauth(key, s)
	}
	if _, set := d.places[place("isolation")]; set || s.Command != "" {
		if !set {
			s.Isolation = DefaultIsolation
		}
		d.oneOf(place("isolation"), s.Isolation, IsolationUID, IsolationGVisor, IsolationNone)
	}
	d.confinement(key, s, dir)
	for _, name := range sortedKeys(s.Env) {
		k := place("env." + name)
		d.name(k, "variable", name, envName, "use letters, digits and underscores")
		d.references(k, s.Env[name])
		if strings.ContainsRune(s.Env[name], 0) {
			d.fail(d.places[k], "remove it", "%s holds a NUL character", k)
		}
	}
	for _, name := range sortedKeys(s.Headers) {
		d.name(place("headers."+name), "header", name, headerName, "use letters, digits and hyphens")
		d.sent(place("headers."+name), s.Headers[name])
	}
	d.within(place("timeout"), s.Timeout > 0 && s.Timeout <= 24*time.Hour, "between 1ms and 24h")
	d.within(place("max_line"), s.MaxLine >= 4*KiB && s.MaxLine <= GiB, "between 4KiB and 1GiB")
}

// sent checks a value that goes into a header.
func (d *decoder) sent(key, value string) {
	d.references(key, value)
	if strings.ContainsAny(value, "\r\n\x00") {
		d.fail(d.places[key], "write it on one line", "%s holds a line break", key)
	}
}

func named(key string) string {
	if key == "" {
		return "the server"
	}
	return key
}

// stray refuses keys that the other kind of server has.
func (d *decoder) stray(key string, names ...string) {
	for _, n := range names {
		if p, set := d.places[join(key, n)]; set {
			d.fail(p, "remove it: servers with a command have args, env, isolation, egress, secrets, roots, limits, idle and processes; those with a url have headers and oauth; those with openapi have headers, base, auth and token_url",
				"%s does not fit this kind of server", join(key, n))
		}
	}
}

func (d *decoder) command(key string, s *Server, dir string) {
	switch {
	case filepath.IsAbs(s.Command):
	case strings.Contains(s.Command, "/") && dir != "":
		s.Command = filepath.Join(dir, s.Command)
	case strings.Contains(s.Command, "/"):
		d.fail(d.places[key], "give an absolute path, or a name that is on the PATH", "%s: %q is relative to nothing", key, s.Command)
	case strings.ContainsAny(s.Command, " \t\n"):
		d.fail(d.places[key], "put the program into command and the rest into args: no shell splits it", "%s: %q is more than a program", key, s.Command)
	}
}

func (d *decoder) endpoint(key, s string) {
	const hint = "write http://HOST[:PORT]/PATH or https://…"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		d.fail(d.places[key], hint, "%s is not a URL", key)
	case u.User != nil:
		d.fail(d.places[key], "move the credential into headers, as ${secret:NAME}", "%s holds a user or password", key)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "":
		d.fail(d.places[key], hint, "%s is not the URL of an HTTP endpoint", key)
	}
}

func (d *decoder) sandbox(s *Sandbox, dir string) {
	if strings.HasPrefix(s.Host, "/") || strings.HasPrefix(s.Host, ".") {
		d.path("sandbox.host", &s.Host, dir)
	} else if s.Host != "" {
		d.hostPort("sandbox.host", s.Host, false)
	}
	if s.Image == "" {
		d.fail(d.places["sandbox.image"], "name an image, see sallyport sandbox images", "sandbox.image is empty")
	}
	d.each("sandbox.images", s.Images, func(key, v string) {
		d.name(key, "image", v, `^([a-z][a-z0-9._-]{0,62}|sha256-[0-9a-f]{64})$`, "name an image, see sallyport sandbox images")
	})
	d.each("sandbox.tiers", s.Tiers, func(key, v string) { d.oneOf(key, v, sallyport.Tiers()...) })
	if len(s.Tiers) > 0 && !slices.Contains(s.Tiers, sallyport.TierGVisor) {
		d.fail(d.places["sandbox.tiers"], "add gvisor: tools have it where nothing else is said, and servers run in it", "sandbox.tiers lacks gvisor")
	}
	d.within("sandbox.runs", s.Runs > 0, "at least 1")
	d.within("sandbox.queue", s.Queue >= 0 && s.Queue <= 10_000, "from 0 to 10000")
	d.within("sandbox.warm", s.Warm >= 0 && s.Warm <= 256, "from 0 to 256")
	d.within("sandbox.sessions.count", s.Sessions.Count >= 0 && s.Sessions.Count <= 256, "from 0 to 256")
	d.within("sandbox.sessions.per_agent", s.Sessions.PerAgent > 0, "at least 1")
	d.within("sandbox.sessions.rest", s.Sessions.Rest >= 0 && s.Sessions.Rest <= 24*time.Hour, "between 0s and 24h")
	d.within("sandbox.sessions.idle", s.Sessions.Idle >= time.Second && s.Sessions.Idle <= 24*time.Hour, "between 1s and 24h")
	d.within("sandbox.sessions.life", s.Sessions.Life >= time.Second && s.Sessions.Life <= 7*24*time.Hour, "between 1s and 168h")
	l := s.Limits
	d.within("sandbox.limits.timeout", l.Timeout > 0 && l.Timeout <= 24*time.Hour, "between 1ms and 24h")
	d.within("sandbox.limits.memory", l.Memory >= 16*MiB, "at least 16MiB")
	d.within("sandbox.limits.processes", l.Processes > 0, "at least 1")
	d.within("sandbox.limits.disk", l.Disk >= MiB, "at least 1MiB")
	d.within("sandbox.limits.output", l.Output >= KiB, "at least 1KiB")
	d.within("sandbox.limits.cpus", l.CPUs > 0 && l.CPUs <= 1024, "above 0")
}

func (d *decoder) numbers(c *Config) {
	d.within("approvals.wait", c.Approvals.Wait <= 24*time.Hour, "at most 24h")
	d.within("approvals.decide_by", c.Approvals.DecideBy > 0, "above 0")
	d.within("approvals.run_by", c.Approvals.RunBy > 0, "above 0")
	d.approvals(c.Approvals)
	d.within("sagas.open_for", c.Sagas.OpenFor > 0 && c.Sagas.OpenFor <= 24*time.Hour, "between 1ms and 24h")
	d.oneOf("sagas.on_timeout", c.Sagas.OnTimeout, "rollback", "park")
	d.within("sagas.lease", c.Sagas.Lease >= time.Second && c.Sagas.Lease <= time.Hour, "between 1s and 1h")
	d.within("sagas.concurrency", c.Sagas.Concurrency > 0 && c.Sagas.Concurrency <= 1024, "between 1 and 1024")
	d.within("limits.rate", c.Limits.Rate > 0 && c.Limits.Rate <= 1e9, "above 0")
	d.within("limits.burst", c.Limits.Burst > 0, "at least 1")
	d.within("limits.bytes", c.Limits.Bytes >= KiB, "at least 1KiB")
	d.within("limits.body", c.Limits.Body >= KiB && c.Limits.Body <= GiB, "between 1KiB and 1GiB")
	d.within("limits.answer", c.Limits.Answer >= time.Second && c.Limits.Answer <= 24*time.Hour, "between 1s and 24h")
	d.within("limits.task", c.Limits.Task >= 100*time.Millisecond && c.Limits.Task <= time.Hour, "between 100ms and 1h")
	d.within("limits.concurrency", c.Limits.Concurrency > 0, "at least 1")
	d.within("limits.total", c.Limits.Total > 0, "at least 1")
	t := c.Limits.Tenant
	d.within("limits.tenant.rate", t.Rate >= 0 && t.Rate <= 1e6, "0, or up to 1000000")
	d.within("limits.tenant.burst", t.Burst >= 0 && (t.Burst == 0 || t.Rate > 0), "0, or beside a rate")
	d.within("limits.tenant.concurrency", t.Concurrency >= 0, "0 or more")
	d.ledger(c)
	d.within("redact.max_bytes", c.Redact.MaxBytes >= 4*KiB && c.Redact.MaxBytes <= GiB, "between 4KiB and 1GiB")
	d.each("redact.pii", c.Redact.PII, func(key, v string) { d.oneOf(key, v, "card", "ssn", "email") })
	d.each("redact.images", c.Redact.Images, func(key, host string) {
		d.name(key, "host", host, `^(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)$`, "write img.example.com, *.example.com for all below it, or * for all")
	})
	d.oneOf("redact.outbound", c.Redact.Outbound, OutboundApprove, OutboundDeny, OutboundOff)
	d.within("redact.taint", c.Redact.Taint >= 0 && c.Redact.Taint <= 30*24*time.Hour, "between 0s and 720h")
	d.each("messages.internal", c.Messages.Internal, func(key, domain string) {
		d.name(key, "mail domain", domain, `^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+$`, "write the domain alone, such as example.com; an international one in the form of the DNS, xn--…")
	})
	d.within("telemetry.sample", c.Telemetry.Sample >= 0 && c.Telemetry.Sample <= 1, "between 0 and 1")
	d.oneOf("telemetry.log", c.Telemetry.Log, "debug", "info", "warn", "error")
	if c.Telemetry.Endpoint != "" {
		d.endpoint("telemetry.endpoint", c.Telemetry.Endpoint)
	}
}

func (d *decoder) approvals(a Approvals) {
	d.within("approvals.cooldown", a.Cooldown <= 24*time.Hour, "at most 24h")
	d.within("approvals.per_agent", a.PerAgent > 0, "at least 1")
	d.within("approvals.per_tenant", a.PerTenant > 0, "at least 1")
	d.within("approvals.irreversible.quorum", a.Irreversible.Quorum >= 1 && a.Irreversible.Quorum <= sallyport.MaxQuorum, "between 1 and "+strconv.Itoa(sallyport.MaxQuorum))
	for key, groups := range map[string][]string{"approvals.irreversible.groups": a.Irreversible.Groups, "approvals.escalate.groups": a.Escalate.Groups} {
		d.each(key, groups, func(key, group string) {
			d.name(key, "group", group, agentName, "use letters, digits, dots, hyphens and underscores, at most 64")
		})
	}
	if e := a.Escalate; (e.After > 0) != (len(e.Groups) > 0) {
		d.fail(d.places["approvals.escalate"], "say after how long, and which groups may decide then", "approvals.escalate needs both after and groups")
	} else if e.After >= a.DecideBy && e.After > 0 {
		d.fail(d.places["approvals.escalate.after"], "choose a time below approvals.decide_by", "approvals.escalate.after comes when the ticket has expired")
	}
}

func (d *decoder) within(key string, ok bool, want string) {
	if !ok {
		d.fail(d.places[key], "choose a value "+want, "%s must be %s", key, want)
	}
}

func (d *decoder) oneOf(key, v string, known ...string) {
	if !slices.Contains(known, v) {
		d.fail(d.places[key], "write one of "+strings.Join(known, ", "), "%s: %q is not known", key, v)
	}
}

func (d *decoder) each(key string, items []string, check func(key, item string)) {
	for i, item := range items {
		check(key+"["+strconv.Itoa(i)+"]", item)
	}
}

func (d *decoder) name(key, what, name, pattern, hint string) {
	if ok, _ := regexp.MatchString(pattern, name); !ok {
		d.fail(d.places[key], hint, "%q cannot be the name of a %s", name, what)
	}
}

func (d *decoder) path(key string, p *string, dir string) {
	if *p == "" {
		if place, set := d.places[key]; set {
			d.fail(place, "give a path, or remove the line", "%s is empty", key)
		}
		return
	}
	if strings.ContainsRune(*p, 0) {
		d.fail(d.places[key], "give a path", "%s is not a path", key)
		return
	}
	if strings.HasPrefix(*p, "~") {
		d.fail(d.places[key], "write the path out: ~ is the shell's", "%s: %q is not a path", key, *p)
		return
	}
	if !filepath.IsAbs(*p) {
		*p = filepath.Join(dir, *p)
	}
}

// hostPort checks HOST:PORT. Port 0 lets the system choose, where it may.
func (d *decoder) hostPort(key, s string, zero bool) {
	const hint = "write HOST:PORT, for example 127.0.0.1:7450 or [::1]:7450"
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		d.fail(d.places[key], hint, "%s: %q is not HOST:PORT", key, s)
		return
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !zero {
		d.fail(d.places[key], hint, "%s: %q is not a port", key, port)
	}
	if host == "" {
		d.fail(d.places[key], "name the address; 0.0.0.0 means all of them", "%s: %q names no host", key, s)
	} else if !hostOK(host) {
		d.fail(d.places[key], hint, "%s: %q is not a host", key, host)
	}
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

func hostOK(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || hostPattern.MatchString(host)
}

// destination checks one entry of an egress list: host:port, where the host
// may begin with *. for the names below it.
func (d *decoder) destination(key, s string) {
	d.hostPort(key, strings.TrimPrefix(s, "*."), false)
}

func (d *decoder) private(key, s string) {
	const hint = "write a range such as 10.1.0.0/16"
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		d.fail(d.places[key], hint, "%s: %q is not a CIDR range", key, s)
	case p != p.Masked():
		d.fail(d.places[key], "write "+p.Masked().String(), "%s: %q has bits beyond its length", key, s)
	case p.Bits() == 0:
		d.fail(d.places[key], hint, "%s: %q is every address", key, s)
	}
}
