package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

var harmlessDevices = set(`/dev/null /dev/stdout /dev/stderr /dev/tty /dev/fd/1 /dev/fd/2 /dev/zero /dev/full /dev/urandom /dev/random /dev/stdin`)

func (w *walk) redirect(r *syntax.Redirect, s *syntax.Stmt) {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return
	}
	args := w.expand(r.Word)
	if len(args) != 1 {
		w.unknown("redirects to what cannot be told")
		return
	}
	target := args[0]
	if (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && target.literal() && strings.Trim(target.text, "0123456789-") == "" {
		return
	}
	if r.Op == syntax.RdrIn || r.Op == syntax.DplIn {
		w.reads(target)
		if isNetwork(target.text) {
			w.found.Add(sallyport.Critical, "opens a network connection by %s", target.text)
		}
		return
	}
	empties := (r.Op == syntax.RdrOut || r.Op == syntax.RdrClob || r.Op == syntax.RdrAll) && emptiesFile(s)
	w.writesFile(target, empties)
}

// emptiesFile finds  > file,  : > file  and  cat /dev/null > file.
func emptiesFile(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if s.Cmd == nil || ok && len(call.Args) == 0 {
		return true
	}
	if !ok {
		return false
	}
	switch call.Args[0].Lit() {
	case ":", "true":
		return true
	case "cat":
		return len(call.Args) == 2 && call.Args[1].Lit() == "/dev/null"
	}
	return false
}

func isNetwork(path string) bool {
	return strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/")
}

var systemFolders = []string{"/etc/", "/bin/", "/sbin/", "/usr/", "/lib", "/boot/", "/sys/", "/proc/", "/root/.ssh", "/var/spool/cron"}

func (w *walk) writesFile(target arg, empties bool) {
	name := target.text
	if harmlessDevices[name] && target.literal() {
		return
	}
	w.found.Object(name)
	switch {
	case isNetwork(name):
		w.found.Add(sallyport.Critical, "opens a network connection by %s", name)
	case strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/dev/shm/"):
		w.found.Lost("writes to device %s, past every file system", name)
	case systemPath(name) || strings.Contains(name, ".ssh/"):
		w.found.Add(sallyport.Critical, "writes system file %s", name)
	case empties:
		w.found.Lost("empties file %s: what it held cannot be brought back", name)
	case !target.known:
		w.found.Add(sallyport.High, "writes a file whose name is made at run time")
	default:
		w.found.Add(sallyport.High, "writes file %s", name)
	}
}

func systemPath(name string) bool {
	for _, f := range systemFolders {
		if strings.HasPrefix(name, f) && !strings.HasPrefix(name, "/usr/local/share") {
			return true
		}
	}
	return false
}

// reads notes a file that is read, if it is secret.
func (w *walk) reads(a arg) {
	if finding.SecretPath(a.text) {
		w.found.Object(a.text)
		w.found.Add(sallyport.Medium, "reads %s, which holds secrets", a.text)
	}
}

// dangerousEnv are the variables that make other programs run code or find
// other files.
func dangerousEnv(name string) bool {
	for _, prefix := range []string{"LD_", "DYLD_", "GIT_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_", "JAVA_", "_JAVA", "GCONV_", "NLS", "PG", "MYSQL_"} {
		if strings.HasPrefix(name, prefix) {
			return name != "PYTHONIOENCODING" && name != "PYTHONUNBUFFERED" && name != "NODE_ENV" && name != "GIT_PAGER_IN_USE"
		}
	}
	switch name {
	case "PATH", "IFS", "ENV", "PS4", "PS1", "PROMPT_COMMAND", "PAGER", "MANPAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN",
		"LESSCLOSE", "LESS", "SHELL", "SHELLOPTS", "CDPATH", "GLOBIGNORE", "HOME", "TAR_OPTIONS", "RSYNC_RSH", "CVS_RSH", "AWKPATH",
		"AWKLIBPATH", "GREP_OPTIONS", "ZDOTDIR", "KUBECONFIG", "DOCKER_HOST", "MAKEFLAGS", "CC", "CXX", "OPENSSL_CONF", "SUDO_ASKPASS",
		"SSH_ASKPASS", "RIPGREP_CONFIG_PATH", "CURL_HOME", "WGETRC", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY":
		return true
	}
	return false
}

// environment judges X=1 before a command, and export X=1.
func (w *walk) environment(a *syntax.Assign) {
	if a.Name == nil || a.Naked {
		return
	}
	if dangerousEnv(a.Name.Value) {
		w.unknown("sets %s, which changes what other programs run", a.Name.Value)
	}
}
