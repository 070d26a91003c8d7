package paths

import (
	"path"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/finding"
)

// secretParts mark paths that hold secrets by the conventions of their
// programs, besides those that finding knows. Lower case.
var secretParts = []string{
	"/.azure/", "gcloud/credentials", "gcloud/access_tokens", "gcloud/legacy_credentials", ".config/gh/hosts", ".config/hub", ".terraform.d/credentials",
	".terraformrc", ".boto", ".s3cfg", ".config/rclone", ".oci/config", ".config/doctl", ".password-store", ".local/share/keyrings", "/keychains/",
	"login data", "/cookies", "cookies.sqlite", "key3.db", "key4.db", "logins.json", "signons.sqlite", "web data", "local state",
	".mozilla/firefox", ".config/google-chrome", ".config/chromium", "google/chrome/user data", "wallet.dat", ".electrum", ".ethereum/keystore",
	"/etc/krb5.keytab", "/etc/security/opasswd", "/etc/master.passwd", "windows/system32/config/sam", "ntds.dit", "/var/run/secrets", "/etc/kubernetes",
	".config/op/", ".bitwarden", "1password", ".cargo/credentials", ".gem/credentials", ".nuget/nuget.config", ".m2/settings", ".config/composer/auth",
	".zsh_history", ".python_history", ".mysql_history", ".sqlite_history", ".node_repl_history", ".rediscli_history", "/proc/kmem", "/dev/mem", "/dev/kmem",
	".config/git/credentials", ".databrickscfg", ".snowsql/config", "terraform.tfstate", ".htpasswd", "shadow-", "/etc/wireguard", "/etc/openvpn",
}

// examples stand for all secrets where a path is a pattern.
var examples = []string{
	"/.ssh/id_rsa", "/.ssh/id_ed25519", "/.env", "/.aws/credentials", "/etc/shadow", "/etc/gshadow", "/.netrc", "/.pgpass", "/.git-credentials",
	"/.kube/config", "/.npmrc", "/.bash_history", "/.docker/config.json", "/.gnupg/secring.gpg", "/server.key", "/server.pem",
}

// Secret tells whether a path leads to secrets, as far as its text says. A
// pattern counts if it could stand for one and is not made for everything.
func Secret(name string) bool {
	for _, s := range formsOf(name) {
		if finding.SecretPath(s) {
			return true
		}
		for _, part := range secretParts {
			if strings.Contains("/"+s, part) {
				return true
			}
		}
		if strings.ContainsAny(s, "*?[") && matchesSecret(s) {
			return true
		}
	}
	return false
}

func matchesSecret(pattern string) bool {
	parts := strings.Split(strings.TrimLeft(pattern, "~/"), "/")
	meant := slices.ContainsFunc(parts, func(p string) bool {
		return strings.ContainsAny(p, "*?[") && (strings.HasPrefix(p, ".") || len(strings.Trim(p, "*?[]")) > 1)
	})
	return meant && slices.ContainsFunc(examples, func(example string) bool {
		have := strings.Split(strings.TrimPrefix(example, "/"), "/")
		n := min(len(have), len(parts))
		for i := 1; i <= n; i++ {
			p, h := parts[len(parts)-i], have[len(have)-i]
			if ok, err := path.Match(p, h); err != nil || !ok || strings.HasPrefix(h, ".") && !strings.HasPrefix(p, ".") {
				return false
			}
		}
		return true
	})
}

// system are folders that the machine itself runs on or obeys.
var system = []string{
	"/etc/", "/bin/", "/sbin/", "/usr/", "/lib", "/boot/", "/sys/", "/proc/", "/var/spool/cron", "/var/spool/at", "/library/", "/system/",
	"c:/windows", "/c:/windows", "c:/program", "/private/etc/", "/nix/", "/snap/", "/run/systemd",
}

// obeyed are folders whose files programs run or obey when they are used next.
var obeyed = []string{
	"/.ssh/", "/.git/", "/.config/systemd/", "/.config/autostart/", "/.config/fish/", "/.config/git/", "/.config/nvim/", "/.config/pip/", "/.vim/",
	"/.emacs.d/", "/.gnupg/", "/.husky/", "/.githooks/", "/.github/workflows/", "/.github/actions/", "/.circleci/", "/.vscode/", "/.idea/", "/.devcontainer/", "/.cursor/", "/.claude/", "/.codex/", "/.gemini/", "/.windsurf/", "/.continue/", "/.roo/",
	"/.cargo/config", "/.cargo/bin/", "/.gradle/", "/.m2/", "/.local/bin/", "/.local/share/applications/", "/.pyenv/", "/.nvm/", "/.docker/", "/.kube/", "/.aws/",
	"/node_modules/.bin/", "venv/bin/", "/go/bin/", "/launchagents/", "/launchdaemons/", "/start menu/programs/startup/", "/site-packages/",
	"/dist-packages/", "/cron.d/", "/cron.daily/", "/crontabs/", "/init.d/", "/rc.d/", "/profile.d/", "/sudoers.d/", "/systemd/system/", "/systemd/user/", ".git/hooks/", "/.config/environment.d/",
	"/windowspowershell/", "/root/bin/", "/home/bin/",
}

// obeyedNames are files that programs run or obey wherever they lie.
var obeyedNames = set(`.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout
	.inputrc .xinitrc .xprofile .xsession .xsessionrc .vimrc .exrc .nvimrc .emacs .gitconfig .gitmodules .envrc .direnvrc .netrc .pam_environment .rhosts .shosts
	.forward .procmailrc .screenrc .tmux.conf .gdbinit .lldbinit .pythonrc .pythonstartup .irbrc .perldb .psqlrc .sqliterc .my.cnf .curlrc .wgetrc .npmrc .yarnrc
	.yarnrc.yml .pypirc .condarc .mailcap .lesskey authorized_keys authorized_keys2 known_hosts crontab sudoers sitecustomize.py usercustomize.py
	.pre-commit-config.yaml .gitlab-ci.yml jenkinsfile .travis.yml azure-pipelines.yml .mcp.json mcp.json claude_desktop_config.json
	claude.md claude.local.md agents.md agents.override.md gemini.md .cursorrules .windsurfrules .clinerules .goosehints copilot-instructions.md
	profile.ps1 microsoft.powershell_profile.ps1 autorun.inf ld.so.preload rc.local`)

// Executed tells whether what is written to a path is run, or obeyed, later by
// others than the one who writes: start files, hooks, planned jobs, units, keys
// that open a login, and the folders that programs are looked up in.
func Executed(name string) bool {
	return slices.ContainsFunc(formsOf(name), func(s string) bool {
		for _, home := range []string{"~", "$home", "${home}", "%userprofile%", "%homepath%"} {
			if rest, ok := strings.CutPrefix(s, home); ok {
				s = "/home" + rest
				break
			}
		}
		for _, p := range system {
			if strings.HasPrefix(s, p) && !strings.HasPrefix(s, "/usr/local/share/") && !strings.HasPrefix(s, "/usr/share/doc/") {
				return true
			}
		}
		for _, p := range obeyed {
			if strings.Contains("/"+s+"/", p) {
				return true
			}
		}
		base := path.Base(s)
		return obeyedNames[base] || strings.HasSuffix(base, ".pth") || inHomeBin(s) || shadows(s)
	})
}

// ownModules are Python's own modules that the programs import which the shell's
// judge lets pass (code.Looks, -m json.tool, -m py_compile), and theirs. A file of
// such a name in the folder is run instead.
var ownModules = set(`argparse base64 bisect bz2 codecs collections contextlib copyreg csv datetime decimal enum fnmatch fractions functools gettext hashlib
	heapq importlib io json keyword linecache lzma math numbers operator os pathlib posixpath py_compile random re reprlib runpy shutil site stat statistics string
	struct tempfile textwrap threading token tokenize traceback types typing warnings weakref zlib _collections_abc _compression _csv _datetime _decimal
	_hashlib _json _statistics _weakrefset _strptime _pydatetime _pydecimal _colorize _struct _bisect _random binascii calendar locale ast inspect dis opcode
	array bz2 cmath configparser copy csv difflib fnmatch fractions functools glob gzip hmac html ipaddress itertools platform pprint sys tarfile time tomllib unicodedata urllib
	uuid xml zipfile zoneinfo statistics hashlib decimal collections base64 bisect enum datetime numpy pandas yaml torch sklearn scipy matplotlib tensorflow requests django flask transformers
	dateutil pytz six pyarrow charset_normalizer quopri stringprep plistlib`)

// shadows tells a file that Python would take for one of its own modules.
func shadows(s string) bool {
	base := path.Base(s)
	stem, ending, _ := strings.Cut(base, ".")
	if stem == "__init__" {
		stem = path.Base(path.Dir(s))
	}
	return ownModules[stem] && (ending == "py" || ending == "pyc" || strings.HasSuffix(ending, "so") || strings.HasSuffix(ending, "pyd"))
}

// ShadowsAsFolder tells the name of a folder that Python would take for one of its
// own modules, if it holds code.
func ShadowsAsFolder(name string) bool {
	return slices.ContainsFunc(formsOf(name), func(s string) bool { return ownModules[path.Base(s)] })
}

// inHomeBin finds ~/bin, which many logins look programs up in.
func inHomeBin(s string) bool {
	parts := strings.Split(s, "/")
	return len(parts) > 3 && (parts[1] == "home" || parts[1] == "users") && parts[3] == "bin"
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
