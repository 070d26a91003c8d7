package shell

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

// A program with sub-commands is judged by the first word that is one.
type verbs struct {
	low, high, lost string
	valued          string // options before the sub-command that take a value
	words           int    // of a sub-command, 1 if 0
}

var programs = map[string]verbs{
	"docker": {low: `ps images logs inspect version info stats top port diff history search events container-ls image-ls volume-ls network-ls
		compose-ps compose-logs compose-config system-df context-ls container-ps container-inspect image-inspect network-inspect volume-inspect`,
		high: `start stop restart pause unpause pull push tag login logout rename update commit cp wait compose-up compose-stop compose-restart
			network-create volume-create image-pull image-push`,
		lost: `rm rmi kill prune volume-rm volume-prune system-prune image-rm image-prune container-rm container-prune network-rm network-prune
			compose-down compose-rm builder-prune`, valued: "-H --host --context --config -l", words: 2},
	"kubectl": {low: `get describe logs top version explain api-resources api-versions cluster-info diff events auth-can-i config-view
		config-current-context config-get-contexts rollout-status rollout-history wait`,
		high: `create apply patch edit run expose scale autoscale label annotate set cordon uncordon taint rollout-restart rollout-undo rollout-pause rollout-resume
			config-use-context config-set-context certificate`,
		lost:   `delete drain replace`,
		valued: "-n --namespace --context --kubeconfig --cluster -s --server --as", words: 2},
	"helm": {low: `list ls status get history search show version template lint repo-list`, high: `install upgrade repo-add repo-update rollback pull`,
		lost: `uninstall delete`, valued: "-n --namespace --kube-context", words: 2},
	"terraform": {low: `version show output validate fmt-check state-list state-show providers graph workspace-list workspace-show`,
		high: `init get`, lost: `destroy state-rm workspace-delete`, words: 2},
	"systemctl": {low: `status list-units list-unit-files list-timers list-sockets is-active is-enabled is-failed show cat list-dependencies get-default`,
		high: `start stop restart reload enable disable mask daemon-reload reload-or-restart try-restart unmask reset-failed set-property`,
		lost: `kill`, valued: "-t --type -n --state -H"},
	"docker-compose": {low: `ps logs config images top version ls`, high: `up start stop restart pull create pause unpause build`,
		lost: `down rm kill`, valued: "-f --file -p --project-name"},
	"journalctl": {low: ``},
	"npm": {low: `ls list view info outdated search whoami version-check help audit root prefix explain why config-get config-list`,
		high: `install i ci add update link login logout dedupe`, lost: `unpublish uninstall remove rm prune cache-clean`, words: 2},
	"pip":  {low: `list show freeze check search config-list`, high: `download`, lost: `uninstall`},
	"pip3": {low: `list show freeze check search config-list`, high: `download`, lost: `uninstall`},
	"apt": {low: `list show search policy depends rdepends`, high: `update install upgrade full-upgrade`,
		lost: `remove purge autoremove autopurge clean autoclean`},
	"apt-get":   {low: ``, high: `update install upgrade dist-upgrade download`, lost: `remove purge autoremove clean autoclean`},
	"apt-cache": {low: `search show policy depends rdepends showpkg stats`},
	"dpkg":      {low: `-l -L -s -S --list --listfiles --status --search`, high: `-i --install`, lost: `-r -P --remove --purge`},
	"snap":      {low: `list info find version`, high: `install refresh`, lost: `remove`},
	"yum":       {low: `list info search`, high: `install update`, lost: `remove erase`},
	"dnf":       {low: `list info search`, high: `install update upgrade`, lost: `remove erase`},
	"brew":      {low: `list info search outdated deps`, high: `install upgrade update`, lost: `uninstall cleanup`},
	"gh": {low: `pr-list pr-view pr-status pr-diff pr-checks issue-list issue-view issue-status repo-view repo-list run-list run-view release-list release-view
		auth-status search-repos search-code`, high: `pr-create pr-comment pr-review pr-edit pr-close issue-create issue-comment issue-edit issue-close repo-clone
		repo-fork run-rerun release-create pr-checkout`, lost: `pr-merge repo-delete issue-delete release-delete run-delete secret-delete cache-delete`, words: 2},
	"go": {low: `version env list doc`, high: `mod-tidy mod-download get fmt`, words: 2},
	"aws": {low: `s3-ls sts-get-caller-identity`, high: `s3-cp s3-mb configure-set`, lost: `s3-rm s3-rb s3-mv s3-sync`,
		valued: "--profile --region --output --endpoint-url", words: 2},
	"gcloud": {valued: "--project --zone --region --format"},
	"az":     {valued: "--subscription -o --output"},
}

// redirecting are the options by which even a verb that only shows runs another
// program, writes, or talks to whom the command chooses.
var redirecting = map[string]*regexp.Regexp{
	"go":        regexp.MustCompile(`^--?(toolexec|vettool|exec|overlay|modfile|w|u|mod=mod)(=|$)`),
	"npm":       regexp.MustCompile(`^--(script-shell|node-options|editor|viewer|browser|shell|git|userconfig|globalconfig|prefix)(=|$)`),
	"docker":    regexp.MustCompile(`^(-H|--host|--config|--context|-c$)`),
	"kubectl":   regexp.MustCompile(`^(-s$|--server|--kubeconfig|--context|--raw|--token|--as)`),
	"helm":      regexp.MustCompile(`^(--post-renderer|--kube|--registry-config|--repository-config)`),
	"systemctl": regexp.MustCompile(`^(-H|--host|-M|--machine|--root|--image)`),
	"terraform": regexp.MustCompile(`^-chdir`),
}

// byVerb judges programs such as docker and kubectl by their sub-command.
func (w *walk) byVerb(name string, args []arg) bool {
	p, ok := programs[name]
	if !ok {
		return false
	}
	if onlyHelp(args) {
		return true
	}
	valued := set(p.valued)
	var found []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.loose || !a.known && len(found) < max(p.words, 1):
			w.unknown("%s is given a word that is made at run time", name)
			return true
		case strings.HasPrefix(a.text, "-") && name != "dpkg":
			if valued[a.text] {
				i++
			}
		default:
			found = append(found, a.text)
		}
	}
	w.verb(name, p, found, args)
	return true
}

func (w *walk) verb(name string, p verbs, found []string, args []arg) {
	if name == "journalctl" {
		w.limited(name, args, `-u= -n= -f -e -x -r -b -k -p= -o= -S= -U= -t= -q --since= --until= --unit= --lines= --no-pager --follow --boot --priority= --output= --grep=
			--disk-usage --list-boots --reverse -g= -xe -xeu=`)
		return
	}
	one, two := "", ""
	if len(found) > 0 {
		one = found[0]
	}
	if len(found) > 1 {
		two = found[0] + "-" + found[1]
	}
	for _, object := range found[min(len(found), 1):] {
		w.found.Object(object)
	}
	is := func(list string) bool { s := set(list); return s[one] || two != "" && s[two] }
	switch {
	case is(p.lost):
		w.found.Lost("%s %s takes something away: it cannot be brought back", name, strings.Join(found[:min(2, len(found))], " "))
	case is(p.high):
		w.found.Add(sallyport.High, "%s %s changes something", name, one)
	case is(p.low):
		if r := redirecting[name]; r != nil && slices.ContainsFunc(args, func(a arg) bool { return r.MatchString(a.text) }) {
			w.unknown("%s %s is given an option that can run a program, write, or reach elsewhere", name, one)
			return
		}
		w.readsVerb(name, found)
	case name == "aws" || name == "gcloud" || name == "az":
		w.cloud(name, found)
	default:
		w.opaque = true
		w.unknown("%s %s is not known to be harmless", name, one)
	}
}

func (w *walk) readsVerb(name string, found []string) {
	if name != "kubectl" {
		return
	}
	for _, f := range found {
		if kind, _, _ := strings.Cut(strings.ToLower(f), "/"); kind == "secret" || kind == "secrets" {
			w.found.Add(sallyport.Medium, "reads secrets of the cluster")
		}
	}
}

// cloud judges by the way that cloud programs name what they do.
func (w *walk) cloud(name string, found []string) {
	for _, f := range found {
		first, _, _ := strings.Cut(f, "-")
		switch first {
		case "delete", "terminate", "remove", "purge", "destroy", "deregister", "release", "rm", "cancel", "reset", "detach", "disable", "stop":
			w.found.Lost("%s %s takes something away in the cloud", name, strings.Join(found, " "))
			return
		}
	}
	for _, f := range found[min(1, len(found)):] {
		first, _, _ := strings.Cut(f, "-")
		switch first {
		case "describe", "list", "show":
			return
		case "get":
			if strings.Contains(f, "secret") || strings.Contains(f, "password") || strings.Contains(f, "parameter") || strings.Contains(f, "token") {
				w.found.Add(sallyport.Medium, "reads secrets of the cloud")
			}
			return
		case "create", "put", "update", "modify", "run", "start", "reboot", "attach", "associate", "add", "set", "tag", "copy", "import", "enable", "register":
			w.found.Add(sallyport.High, "%s %s changes something in the cloud", name, strings.Join(found, " "))
			return
		}
	}
	w.unknown("%s %s is not known to be harmless", name, strings.Join(found, " "))
}
