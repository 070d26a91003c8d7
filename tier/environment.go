package tier

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/tier/payload"
)

// proxyURL is where a sandbox's proxy is. It is there whether or not anything
// may be reached: a refusal in words is better than a network that fails.
var proxyURL = fmt.Sprintf("http://127.0.0.1:%d", payload.ProxyPort)

// beyondHeap is more than what a sandbox has beside the memory of its programs.
const beyondHeap = 64 << 20

const noProxy = "localhost,127.0.0.1,::1"

// Trust tells the usual clients where the certificates are that they trust.
func Trust() (env []string) {
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"} {
		env = append(env, name+"="+payload.Bundle)
	}
	return env
}

// Environment is what every program starts with; a request's own variables win.
// What it runs for leaves results, or it serves. memory is what it may use: Node.js, which
// by itself aborts at half of that, is to come to its end.
func Environment(own []string, serves bool, memory int64) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + WorkDir, "USER=agent", "LOGNAME=agent",
		"LANG=C.UTF-8", "TZ=UTC", "TMPDIR=/tmp",
		"XDG_CACHE_HOME=" + WorkDir + "/.cache", "XDG_RUNTIME_DIR=/run",
		"MPLCONFIGDIR=" + WorkDir + "/.cache/matplotlib",
	}
	if !serves {
		env = append(env, outputEnv()...)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		env = append(env, name+"="+proxyURL)
	}
	env = append(env, "NO_PROXY="+noProxy, "no_proxy="+noProxy, "NODE_USE_ENV_PROXY=1", fmt.Sprintf("NODE_OPTIONS=--max-old-space-size=%d", (memory+beyondHeap)>>20))
	return Override(env, own)
}

// Override adds own variables to usual ones, which it changes: of those with the
// same name only the own are left.
func Override(usual, own []string) []string {
	usual = slices.DeleteFunc(usual, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
	return append(usual, own...)
}
