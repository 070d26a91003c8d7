package shell

import (
	"cmp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/shell/parts"
	"sallyport.dev/sallyport/risk/web"
)

// network notes a command that can tell another machine what it is given.
func (w *walk) network(name string) {
	w.found.Effect(sallyport.EffectNetwork)
	w.talks = cmp.Or(w.talks, name)
}

// leaks: a script that reads a secret and can tell another machine something is
// taken to tell it that.
func (w *walk) leaks() {
	if w.secret != "" && w.talks != "" {
		w.found.Effect(sallyport.EffectMessage)
		w.found.Lost("reads %s and talks to another machine: a secret that is out cannot be called back", w.secret)
		w.parts.Add(parts.Lost, w.talks)
	}
}

// sends judges data for curl: @FILE, or NAME=@FILE in a form, is a file's.
func (w *walk) sends(data string) {
	if name, file, named := strings.Cut(data, "@"); named && name != "" && !strings.Contains(name, "=") { // --data-urlencode NAME@FILE
		w.reads(arg{Text: file})
		return
	}
	_, file, form := strings.Cut(data, "=")
	if form && strings.HasPrefix(strings.TrimLeft(file, "@<"), "-") {
		return
	}
	w.reads(arg{Text: strings.TrimLeft(data, "@<")})
	if form && file != "" && (file[0] == '@' || file[0] == '<') {
		name, _, _ := strings.Cut(file[1:], ";")
		w.reads(arg{Text: name})
	}
}

// elsewhere judges an option that sends the request to another machine than the
// address names: HOST:PORT:ADDRESS, HOST:PORT:HOST:PORT, or a proxy.
func (w *walk) elsewhere(option, value string) {
	w.found.Add(sallyport.High, "curl is told by %s to go elsewhere than the address says", option)
	if option == "-x" || option == "--proxy" {
		_, value, _ = strings.Cut("://"+value, "://")
		w.talk(value[strings.LastIndex(value, "://")+1:])
		return
	}
	parts := strings.SplitN(value, ":", 3)
	if len(parts) < 3 {
		return
	}
	for to := range strings.SplitSeq(parts[2], ",") {
		w.talk(to)
	}
}

// talk judges the machine of HOST or HOST:PORT.
func (w *walk) talk(host string) {
	if host = strings.TrimPrefix(strings.TrimPrefix(host, "//"), "/"); host == "" || host == ":" {
		return
	}
	w.asked(web.Judge(web.Request{Method: "GET", URL: "http://" + strings.TrimSuffix(host, ":")}))
}
