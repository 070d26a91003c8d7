package known

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// envPrefixes, envSuffixes and envNames are the variables that make other
// programs run code, find other files, or talk to others.
var (
	envPrefixes = []string{"LD_", "DYLD_", "GIT_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_", "JAVA_", "_JAVA", "GCONV_", "NLS", "PG", "MYSQL_", "SSH_", "GO", "CARGO_",
		"RUSTC", "RUSTUP_", "NPM_CONFIG_", "PIP_", "AWS_", "DOTNET_", "LUA_", "R_", "OPENSSL_", "SSL_", "XDG_", "DOCKER_", "COMPOSE_", "HELM_", "TF_", "ANSIBLE_", "MALLOC_", "GLIBC_",
		"GTK_", "QT_", "SYSTEMD_", "UV_", "POETRY_", "CMAKE_", "PKG_CONFIG"}
	envSuffixes = []string{"PAGER", "EDITOR", "_RSH", "_COMMAND", "_ASKPASS", "BROWSER", "_WRAPPER", "_PRELOAD", "_OPTIONS", "_OPTS", "_HOOK", "_LAUNCHER", "_PROXY"}
	envNames    = word.Set(`VERSION_CONTROL POSIXLY_CORRECT PATH IFS ENV PS0 PS1 PS2 PS4 PROMPT_COMMAND VISUAL LESSOPEN LESSCLOSE LESS LESSKEY MORE SHELL SHELLOPTS CDPATH GLOBIGNORE HOME TMPDIR HISTFILE INPUTRC
		FPATH MANPATH MANOPT CVS_RSH AWKPATH AWKLIBPATH ZDOTDIR KUBECONFIG MAKEFLAGS MFLAGS MAKE MAKEFILES CC CXX LD AS AR CPP COMPILER_PATH GCC_EXEC_PREFIX CLASSPATH
		CURL_HOME WGETRC NETRC TERMINFO TERMCAP FCEDIT TAR_LONGLINK_100 RIPGREP_CONFIG_PATH ACKRC SUDO_EDITOR HOSTALIASES RES_OPTIONS LOCALDOMAIN BC_ENV_ARGS
		EXINIT VIMINIT MYVIMRC VIM VIMRUNTIME NVIM INFOPATH JQ_LIBRARY_PATH SQLITE_HISTORY GZIP BZIP BZIP2 XZ_DEFAULTS XZ_OPT ZSTD_CLEVEL UNZIP ZIPOPT`)
	envHarmless = word.Set(`PYTHONIOENCODING PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONUTF8 PYTHONHASHSEED NODE_ENV GIT_PAGER_IN_USE GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS GOOS GOARCH
		AWS_REGION AWS_DEFAULT_REGION AWS_PROFILE AWS_DEFAULT_OUTPUT AWS_MAX_ATTEMPTS PGPASSWORD PGUSER PGDATABASE PGAPPNAME PGPORT PGHOST MYSQL_PWD TF_IN_AUTOMATION TF_INPUT TF_WORKSPACE PIP_DISABLE_PIP_VERSION_CHECK PGTZ PGDATESTYLE PGCONNECT_TIMEOUT PGCLIENTENCODING SYSTEMD_COLORS`)
)

// Env tells whether a variable of the environment makes other programs run code,
// find other files, or talk to others.
func Env(name string) bool {
	upper := strings.ToUpper(name)
	return !envHarmless[name] && (envNames[upper] ||
		slices.ContainsFunc(envPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) || strings.HasPrefix(upper, "NPM_CONFIG_") ||
		slices.ContainsFunc(envSuffixes, func(s string) bool { return strings.HasSuffix(upper, s) }))
}

var readOnly = regexp.MustCompile(`^(-c default_transaction_read_only=on|-c statement_timeout=\w+|\s)+$`)

// Harmless tells a value by which a variable does nothing: a pager that only prints.
func Harmless(name, value string) bool {
	switch {
	case name == "PGOPTIONS":
		return readOnly.MatchString(value)
	case strings.HasSuffix(name, "PAGER"):
		return value == "" || value == "cat" || value == "less" || value == "more"
	}
	return false
}

// shows is how a program is told to show the environment: letters of ps without a
// hyphen, names in a program of jq.
var shows = map[string]*regexp.Regexp{"jq": regexp.MustCompile(`\$ENV\b|(^|[^\w."$])env\b`), "ps": regexp.MustCompile(`^[a-df-zA-Z]*e[a-zA-Z]*$`)}

// ShowsEnvironment tells that jq or ps shows the environment of processes.
func ShowsEnvironment(name string, args []word.Word) bool {
	return slices.ContainsFunc(args, func(a word.Word) bool { return shows[name].MatchString(a.Text) })
}
