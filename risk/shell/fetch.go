package shell

import (
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/web"
)

// curl's options that change neither the request's method nor any file.
const curlHarmless = `-s -S -f -L -I -i -v -k -N -4 -6 -g -# -H= -A= -e= -m= -r= -w= -b= -u= -x= --silent --show-error --fail --location --head --include --verbose
	--insecure --compressed --header= --user-agent= --referer= --max-time= --connect-timeout= --retry= --retry-delay= --range= --write-out= --http1.1 --http2
	--no-buffer --ipv4 --ipv6 --globoff --fail-with-body --cookie= --user= --cacert= --max-redirs= --tlsv1.2 --proto= --url= -o= --output= -O -J
	--remote-name --remote-header-name -X= --request= -d= --data= --data-raw= --data-binary= --data-urlencode= --json= -F= --form= -T= --upload-file= -G --get --create-dirs --output-dir=`

func (w *walk) curl(args []arg) {
	w.downloads = true
	rest, ok := w.limited("curl", args, curlHarmless)
	method, sends, get, head := "", false, false, false
	headers := map[string]string{}
	for i, a := range args {
		value := arg{}
		if i+1 < len(args) {
			value = args[i+1]
		}
		name, inline, valued := strings.Cut(a.text, "=")
		if !strings.HasPrefix(a.text, "--") || !valued {
			name, inline = a.text, value.text
		}
		if len(name) > 2 && name[0] == '-' && name[1] != '-' {
			var flags string
			flags, name, inline = bundled(name, value.text)
			head, get = head || strings.Contains(flags, "I"), get || strings.Contains(flags, "G")
			if strings.Contains(flags, "O") {
				w.found.Add(sallyport.High, "writes what it fetches into a file")
			}
		}
		switch name {
		case "-X", "--request":
			method = inline
		case "-d", "--data", "--data-raw", "--data-binary", "--data-urlencode", "--json", "-F", "--form":
			sends = true
			w.reads(arg{text: strings.TrimLeft(inline, "@<")})
		case "-T", "--upload-file":
			method = "PUT"
			w.reads(arg{text: inline})
		case "-G", "--get":
			get = true
		case "-I", "--head":
			head = true
		case "-H", "--header":
			if k, v, ok := strings.Cut(inline, ":"); ok {
				headers[strings.TrimSpace(k)] = strings.TrimSpace(v)
			}
		case "-w", "--write-out":
			if strings.Contains(inline, "%output") || strings.HasPrefix(inline, "@") {
				w.unknown("curl is given a format that writes or reads a file")
			}
		case "-o", "--output":
			if inline != "-" {
				w.writesFile(arg{text: inline, known: true}, false)
			}
		case "-O", "--remote-name":
			w.found.Add(sallyport.High, "writes what it fetches into a file")
		case "--url":
			rest = append(rest, arg{text: inline, known: value.known})
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
		w.request(method, rest, headers)
	}
}

// bundled reads -sIXPOST or -sIX POST: the letters that take no value, and the
// option that does, if there is one.
func bundled(letters, next string) (flags, name, value string) {
	for j := 1; j < len(letters); j++ {
		if strings.IndexByte("XdFTHoAembruwx", letters[j]) < 0 {
			continue
		}
		if j+1 < len(letters) {
			next = letters[j+1:]
		}
		return letters[1:j], "-" + letters[j:j+1], next
	}
	return letters[1:], "", ""
}

func (w *walk) request(method string, urls []arg, headers map[string]string) {
	for _, u := range urls {
		if !u.known {
			w.found.Add(sallyport.High, "sends a request whose address is made at run time")
			w.found.Merge(web.Judge(web.Request{Method: method, Headers: headers}))
			continue
		}
		address := u.text
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		w.found.Merge(web.Judge(web.Request{Method: method, URL: address, Headers: headers}))
	}
	if len(urls) == 0 {
		w.found.Merge(web.Judge(web.Request{Method: method, Headers: headers}))
	}
}

func (w *walk) wget(args []arg) {
	w.downloads = true
	rest, ok := w.limited("wget", args, `-q -v -nv -c -N -S -T= -t= -U= -O= -P= -nc -np -nd -4 -6 --quiet --spider --timeout= --tries= --user-agent= --header=
		--output-document= --no-check-certificate --server-response --no-verbose --show-progress --continue --max-redirect=`)
	file := true
	for i, a := range args {
		switch {
		case a.text == "--spider", a.text == "-O-" || a.text == "-qO-", a.text == "--output-document=-":
			file = false
		case strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && strings.HasSuffix(a.text, "O") && i+1 < len(args):
			if args[i+1].text == "-" || args[i+1].text == "/dev/null" || args[i+1].text == "/dev/stdout" {
				file = false
			} else {
				w.writesFile(args[i+1], false)
			}
		}
	}
	if file {
		w.found.Add(sallyport.High, "writes what it fetches into a file")
	}
	if ok {
		w.request("GET", rest, nil)
	}
}
