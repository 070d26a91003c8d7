package shell

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/fetch"
	"sallyport.dev/sallyport/risk/shell/word"
	"sallyport.dev/sallyport/risk/web"
)

func (w *walk) curl(args []arg) {
	w.network("curl")
	w.downloads = "here"
	rest, ok := w.allowed("curl", fetch.Files(args))
	method, sends, get, head := "", false, false, false
	var body []string
	headers := map[string]string{}
	into := paths.Overwrites
	if slices.ContainsFunc(args, func(a arg) bool { return a.Is("--no-clobber") }) {
		into = paths.Creates
	}
	for i, a := range args {
		value := arg{}
		if i+1 < len(args) {
			value = args[i+1]
		}
		name, inline, valued := strings.Cut(a.Text, "=")
		if !strings.HasPrefix(a.Text, "--") || !valued {
			name, inline = a.Text, value.Text
		}
		if len(name) > 2 && name[0] == '-' && name[1] != '-' {
			var flags string
			flags, name, inline = fetch.Bundled(name, value.Text)
			head, get = head || strings.Contains(flags, "I"), get || strings.Contains(flags, "G")
			if strings.Contains(flags, "O") {
				w.remoteName(args)
			}
		}
		switch name {
		case "-X", "--request":
			method = inline
		case "-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--json", "-F", "--form":
			sends = true
			body = append(body, inline)
			w.sends(inline)
		case "-T", "--upload-file":
			method = "PUT"
			w.reads(arg{Text: inline})
		case "--resolve", "--connect-to", "-x", "--proxy":
			w.elsewhere(name, inline)
		case "-G", "--get":
			get = true
		case "-I", "--head":
			head = true
		case "-H", "--header", "--proxy-header":
			if strings.HasPrefix(inline, "@") {
				w.sends(inline)
			}
			if k, v, ok := strings.Cut(inline, ":"); ok {
				headers[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		case "-w", "--write-out":
			if strings.Contains(inline, "%output") || strings.HasPrefix(inline, "@") {
				w.unknown("curl is given a format that writes or reads a file")
			}
		case "-o", "--output":
			if inline != "-" {
				w.writes(arg{Text: inline, Known: value.Known || valued || inline != value.Text, Fresh: inline == value.Text && value.Fresh}, into)
			}
		case "-O", "--remote-name":
			w.remoteName(args)
		case "--url":
			rest = append(rest, arg{Text: inline, Known: value.Known})
		}
	}
	switch {
	case method != "":
	case sends && !get:
		method = "POST"
	case head:
		method = "HEAD"
	default:
		method = "GET"
	}
	if ok {
		w.request(web.Request{Method: method, Headers: headers, Body: strings.Join(body, "&")}, rest)
		if w.judge.SQL != nil && sends { // databases that speak HTTP take statements so
			if r := w.judge.SQL("postgres", strings.Join(body, "&")); r.Irreversible {
				w.asked(r)
			}
		}
	}
}

// remoteName is for -O: the file has the name that the address ends with.
func (w *walk) remoteName(args []arg) {
	w.changed("writes what it fetches into a file")
	if !word.Has(args, "--no-clobber", "--remote-header-name", "-J") {
		w.lost("writes what it fetches over a file of the same name: what that held cannot be brought back")
	}
}

func (w *walk) request(r web.Request, urls []arg) {
	for _, u := range urls {
		if !u.Known {
			w.found.Add(sallyport.High, "sends a request whose address is made at run time")
			w.asked(web.Judge(r))
			continue
		}
		address := u.Text
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		r.URL = address
		w.asked(web.Judge(r))
	}
	if len(urls) == 0 {
		w.asked(web.Judge(r))
	}
}

func (w *walk) wget(args []arg) {
	w.network("wget")
	w.downloads = "here"
	rest, ok := w.allowed("wget", args)
	file := true
	for i, a := range args {
		switch {
		case a.Is("--spider", "-O-", "-qO-", "--output-document=-"):
			file = false
		case strings.HasPrefix(a.Text, "--output-document="):
			w.writes(arg{Text: strings.TrimPrefix(a.Text, "--output-document="), Known: a.Known}, paths.Overwrites)
		case a.Text == "--output-document" && i+1 < len(args):
			w.writes(args[i+1], paths.Overwrites)
		case strings.HasPrefix(a.Text, "-O") && len(a.Text) > 2:
			w.writes(arg{Text: a.Text[2:], Known: a.Known}, paths.Overwrites)
		case strings.HasPrefix(a.Text, "-") && !strings.HasPrefix(a.Text, "--") && strings.HasSuffix(a.Text, "O") && i+1 < len(args):
			if args[i+1].Text == "-" || args[i+1].Text == "/dev/null" || args[i+1].Text == "/dev/stdout" {
				file = false
			} else {
				w.writes(args[i+1], paths.Overwrites)
			}
		}
	}
	if file {
		w.changed("writes what it fetches into a file")
	}
	if word.Has(args, "-N", "--timestamping", "-c", "--continue") {
		w.lost("writes what it fetches over an older file: what that held cannot be brought back")
	}
	if ok {
		w.request(web.Request{Method: "GET"}, rest)
	}
}

// asked notes what a request does. The command as it is written is shown to
// people, not the request once more.
func (w *walk) asked(r sallyport.Risk) {
	r.Parts = nil
	w.found.Merge(r)
}

// httpie judges http METHOD URL by its method, where that is written and nothing
// is sent but headers and a query.
func (w *walk) httpie(name string, args []arg) {
	method, address, ok := fetch.HTTPie(args)
	if !ok {
		w.unknown("sends a request by %s, whose words are not read here", name)
		return
	}
	w.network(name)
	w.downloads = "here"
	w.request(web.Request{Method: method}, []arg{address})
}
