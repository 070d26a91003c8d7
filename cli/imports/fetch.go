package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/config/foreign"
)

// Bounds on what is fetched.
const (
	patience   = 30 * time.Second // of one request
	maxPages   = 50
	maxServers = 500
)

func unfit(hint, format string, args ...any) error {
	return &sallyport.Error{Code: sallyport.Invalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// get fetches one document: by https, or from this machine; from where it was
// said and nowhere else; in bounded time and size.
func get(ctx context.Context, link string) ([]byte, error) {
	u, err := url.Parse(link)
	if err != nil || u.Host == "" {
		return nil, unfit("write https://HOST/PATH", "%.200q is not the address of a web page", link)
	}
	if u.Scheme != "https" && !loopback(u.Hostname()) {
		return nil, unfit("use https", "%.200q is fetched without encryption: anybody on the way could change it", link)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != u.Host || r.URL.Scheme != u.Scheme || len(via) > 5 {
			return unfit("give that address, if it is meant", "%s sends elsewhere: to %.200q", u.Host, r.URL.Scheme+"://"+r.URL.Host)
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		if own, ok := errors.AsType[*sallyport.Error](err); ok { // a redirect that is not followed
			return nil, own
		}
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("%s does not answer: %.200s", u.Host, err), Hint: "try again later, or save it and give the file", Err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("%s answers %s", u.Host, resp.Status), Hint: "is the address right?"}
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, foreign.MaxBytes+1))
	switch {
	case err != nil:
		return nil, &sallyport.Error{Code: sallyport.Unavailable, Message: fmt.Sprintf("%s breaks off: %.200s", u.Host, err), Hint: "try again later", Err: err}
	case len(b) > foreign.MaxBytes:
		return nil, unfit("ask for less", "the answer of %s has more than %d MiB", u.Host, foreign.MaxBytes>>20)
	}
	return b, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// fromRegistry asks a registry for servers by name, or for all of them.
func (a *app) fromRegistry(ctx context.Context, names []string) (all []foreign.Server, err error) {
	base := strings.TrimSuffix(strings.TrimSuffix(a.registry, "/"), "/v0.1") + "/v0.1/servers"
	if len(names) == 0 {
		return everything(ctx, base)
	}
	for _, name := range names {
		b, err := get(ctx, base+"/"+url.PathEscape(name)+"/versions/latest")
		var list []foreign.Server
		if err == nil {
			list, _, err = foreign.Page(b)
		}
		if err != nil {
			own := foreign.Server{Name: foreign.Named(name), Was: name}
			own.Problem, own.Hint = cli.Said(err)
			list = []foreign.Server{own}
		}
		all = append(all, list...)
	}
	return all, nil
}

// everything follows the cursors of a list to its end.
func everything(ctx context.Context, base string) (all []foreign.Server, err error) {
	seen := map[string]bool{}
	for cursor := ""; ; {
		b, err := get(ctx, base+"?limit=100&version=latest&cursor="+url.QueryEscape(cursor))
		if err != nil {
			return nil, err
		}
		list, next, err := foreign.Page(b)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		switch {
		case next == "":
			return all, nil
		case seen[next]:
			return nil, unfit("tell whoever runs it", "the registry's list does not end: a cursor came twice")
		case len(seen) >= maxPages || len(all) > maxServers:
			return nil, unfit("name the servers that you want", "the registry has more than %d servers", min(len(all), maxServers))
		}
		seen[next], cursor = true, next
	}
}
