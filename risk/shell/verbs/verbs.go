// Package verbs judges the programs whose first words say what they do: package
// managers and their like. Those of clouds and clusters are package cloud's.
package verbs

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/shell/word"
)

// A program with sub-commands is judged by the first word that is one.
type verbs struct {
	low, high, lost string
	valued          string // options before the sub-command that take a value
	words           int    // of a sub-command, 1 if 0
	bare            bool   // without a sub-command it only shows something
}

var programs = map[string]verbs{
	"npm": {low: `ls list view info outdated search whoami version-check help root prefix explain why config-get config-list`,
		high: `login logout`, lost: `ci unpublish uninstall remove rm prune cache-clean`, words: 2},
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
	"heroku":      {low: `logs ps apps releases status domains addons pg:info pg:ps buildpacks features regions version`, high: `ps:restart restart`, lost: `pg:reset apps:destroy addons:destroy ps:stop ps:kill domains:remove releases:rollback`},
	"go":          {low: `version env list doc vet mod-graph mod-why mod-verify`, high: `mod-tidy mod-download get`, lost: `fmt clean fix`, words: 2},
	"cargo":       {low: `tree metadata search --list locate-project pkgid`, lost: `clean uninstall`},
	"yarn":        {low: `info why`, lost: `remove`},
	"pnpm":        {low: `list ls why outdated`, lost: `remove rm uninstall prune`},
	"gem":         {low: `list info search which environment`, lost: `uninstall cleanup`},
	"composer":    {low: `show info outdated why search validate`, lost: `remove`},
	"poetry":      {low: `show version. check`, lost: `remove`},
	"conda":       {low: `list info search env-list`, lost: `remove clean env-remove`, words: 2},
	"7z":          {low: `l t i`, lost: `a x e d u rn`},
	"7za":         {low: `l t i`, lost: `a x e d u rn`},
	"rar":         {low: `l lb lt v vb t`, lost: `a x e d u f m`},
	"unrar":       {low: `l lb lt v vb t p`, lost: `x e`},
	"timedatectl": {low: `status show list-timezones timesync-status`, high: `set-time set-timezone set-ntp set-local-rtc`, bare: true},
	"hostnamectl": {low: `status`, high: `set-hostname hostname set-icon-name set-chassis`, bare: true},
	"localectl":   {low: `status list-locales list-keymaps`, high: `set-locale set-keymap`, bare: true},
	"loginctl":    {low: `list-sessions list-users session-status user-status show-session show-user`, high: `lock-session enable-linger`, lost: `terminate-session terminate-user kill-session kill-user`, bare: true},
	"lvs":         {bare: true}, "vgs": {bare: true}, "pvs": {bare: true},
	"networkctl": {low: `list status`, bare: true},
	"resolvectl": {low: `status query statistics`, high: `flush-caches`, bare: true},
}

// reaching are those that talk to another machine.
var reaching = word.Set(`gh heroku apt apt-get snap yum dnf brew npm pip pip3`)

// options are those that change neither what a showing verb does nor whom it
// asks. Values follow a = here: a word of its own is read as a word.
var options = map[string]word.Options{
	"heroku": word.ParseOptions(`--tail -t -a= -n= -p= -s= -d= --app= --num= --ps= --source= --dyno= --json`),
	"gsutil": word.ParseOptions(`-m -q -l -L -d -r -R -h -s -c -a -b -p= -u=`),
	"bq": word.ParseOptions(`--format= --project_id= --location= --dataset_id= -n= --max_results= --schema -s= --start_row= --view -j -d -p -a --all --filter= --quiet -q --headless
		--routines --models --transfer_config --jobs --datasets --projects --selected_fields= -c --schema_only`),
	"docker": word.ParseOptions(`-a -q -f[= -n[= -s -t -l --all --quiet --filter[= --no-trunc --last[= --latest --size --format[= --tail[= --since[= --until[= --follow --timestamps --details --digests --no-stream --type[= --human --services --json --orphans --index --status[= --limit[= --no-log-prefix`),
	"kubectl": word.ParseOptions(`-n= -A -l[= -o[= -w -f -p -c= -L[= -R --namespace= --all-namespaces --selector[= --output[= --watch-only[= --follow --previous --container= --tail[= --since[= --since-time[= --timestamps --all-containers --show-labels --show-kind
		--context[= --cluster[= --request-timeout[= --raw[= --watch[= --sort-by[= --field-selector[= --no-headers --ignore-not-found --chunk-size[= --label-columns[= --limit-bytes[= --prefix --max-log-requests[= --client --short --recursive --api-group[= --namespaced --verbs[= --minify --flatten --containers --for[= --timeout[= --revision[= --all --list --show-events --types[= --no-color`),
	"systemctl": word.ParseOptions(`-t[= -n[= -l -a -q -p[= -o[= --type[= --state[= --all --no-pager --no-legend --plain --full --lines[= --property[= --value --output[= --failed --reverse --after --before --quiet --user --system --legend[= --now`),
	"aws": word.ParseOptions(`--profile= --region= --output= --query[= --recursive --human-readable --summarize --instance-ids[= --filters[= --max-items[= --page-size[= --no-paginate --no-cli-pager --secret-id[= --name[= --names[= --with-decryption --bucket[= --key[= --prefix[= --function-name[= --since= --follow --format= --filter-pattern[= --log-stream-names[= --limit[= --metric-name[= --namespace[= --period[= --statistics[= --dimensions[= --max-results[=
		--db-instance-identifier[= --volume-ids[= --vpc-ids[= --subnet-ids[= --service[= --services[= --tasks[= --key-id[= --hosted-zone-id[= --policy-arn[= --max-keys[= --delimiter[= --stack-status-filter[= --cluster[= --table-name[= --stack-name[= --log-group-name[= --group-ids[= --user-name[= --role-name[= --start-time[= --end-time[=`),
	"terraform": word.ParseOptions(`-chdir= -recursive -diff -list[= -write[= -json -no-color -raw -state[= -check -compact-warnings`),
	"helm":      word.ParseOptions(`-n= --debug -A -a -o[= -l[= -q -f -r --namespace= --all-namespaces --all --output[= --selector[= --short --max[= --revision[= --version[= --deployed --failed --pending --time-format[= --date --reverse --versions --devel --template[= --strict`),
	"npm":       word.ParseOptions(`-g -l -a -p --global --depth[= --json --long --all --parseable --prod --production --omit[= --only[= --dev --workspaces --workspace[= -w[=`),
	"pip":       word.ParseOptions(`-l -u -o -i -q -v -f --local --user --outdated --uptodate --format[= --files --verbose --quiet --not-required --all --exclude-editable --pre`),
	"gh":        word.ParseOptions(`-R[= -L[= -s[= -a[= -l[= -A[= -S[= -q[= -t[= -c --repo[= --limit[= --state[= --assignee[= --label[= --author[= --search[= --json[= --jq[= --template[= --comments --name-only --patch --color[= --log --log-failed --verbose --job[= --workflow[= --branch[= -b[= --head[= --base[= --event[= --user[= --status[= --watch --required`),
	"go":        word.ParseOptions(`-json -m -u -f[= -deps -test -e -find -compiled -versions -retracted -all -src -short -c -cmd -tags[= -v -mod=readonly -mod=vendor -race -n -x`),
	"apt":       word.ParseOptions(`-a -i -q -v --installed --upgradable --all-versions --names-only --full --recurse --installed --important -n`),
	"dpkg":      word.ParseOptions(`-l -L -s -S --list --listfiles --status --search -i --install -r -P --remove --purge --no-pager`),
	"cargo":     word.ParseOptions(`-i[= -p[= -e[= -d --depth[= --invert[= --package[= --edges[= --no-dedupe --duplicates --format-version[= --no-deps --offline --locked --frozen --limit[= --list --all-features --workspace --prefix[=`),
}

var anyOptions = word.ParseOptions(`-a -l -q -v -n[= -s -1 --all --json --format[= --long --verbose --quiet --output[= --limit[= --no-color --installed --outdated --no-pager`)

// optionsOf returns the list that a program shares with its likes.
func optionsOf(name string) word.Options {
	like := map[string]string{"pnpm": "npm", "yarn": "npm", "pip3": "pip", "apt-get": "apt", "apt-cache": "apt"}
	if o, ok := options[name]; ok {
		return o
	}
	if o, ok := options[like[name]]; ok {
		return o
	}
	return anyOptions
}

// pluginless run nothing by the name of a sub-command that is not their own, so
// that --help after any single word only prints.
var pluginless = word.Set(`go npm pip pip3 apt apt-get apt-cache dpkg snap yum dnf gem`)

var packageWord = regexp.MustCompile(`^(-s|-y|-q|-V|-u|--simulate|--dry-run|--just-print|--no-act|--recon|--no-install-recommends|--only-upgrade|[a-z0-9][a-z0-9.+:=~-]*)$`)

// simulated tells that apt is only to say what it would do.
func simulated(args []word.Word) bool {
	return slices.ContainsFunc(args, func(a word.Word) bool {
		return a.Is("-s", "--simulate", "--dry-run", "--just-print", "--no-act", "--recon")
	}) &&
		!slices.ContainsFunc(args, func(a word.Word) bool { return !a.Literal() || !packageWord.MatchString(a.Text) })
}

// onlyHelp tells VERB --help.
func (p verbs) onlyHelp(name string, args []word.Word) bool {
	n := len(args) - 1
	if n < 1 || n > max(1, p.words) || !args[n].Is("--help") {
		return false
	}
	verb := make([]string, n)
	for i, a := range args[:n] {
		if !a.Literal() || a.Option() {
			return false
		}
		verb[i] = a.Text
	}
	full := strings.Join(verb, "-")
	return n == 1 && pluginless[name] || word.Set(p.low)[full] || word.Set(p.high)[full] || word.Set(p.lost)[full]
}

// A judgement is one command in the making.
type judgement struct {
	*finding.List
	name  string
	found []string // the words that are no options
	args  []word.Word
}

// Judge notes what a program with sub-commands does. It reports whether the
// program is known, and whether what it does cannot be seen from here.
func Judge(l *finding.List, name string, args []word.Word) (ok, opaque bool) {
	p, ok := programs[name]
	if !ok || word.OnlyHelp(args) || p.onlyHelp(name, args) {
		return ok, false
	}
	if reaching[name] {
		l.Effect(sallyport.EffectNetwork)
	}
	if (name == "apt" || name == "apt-get") && simulated(args) {
		l.Effect(sallyport.EffectRead)
		return true, false
	}
	j := judgement{List: l, name: name, args: args}
	valued := word.Set(p.valued)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose || !a.Known && len(j.found) < max(p.words, 1):
			l.Add(sallyport.Critical, "%s is given a word that is made at run time", name)
			return true, true
		case strings.HasPrefix(a.Text, "-") && name != "dpkg":
			if valued[a.Text] {
				i++
			}
		default:
			j.found = append(j.found, a.Text)
		}
	}
	return true, j.verb(p)
}

func (j judgement) lost(format string, args ...any) {
	j.Effect(sallyport.EffectDelete)
	j.Lost(format, args...)
}

func (j judgement) changed(format string, args ...any) {
	j.Effect(sallyport.EffectWrite)
	j.Add(sallyport.High, format, args...)
}

func (j judgement) words(n int) string { return strings.Join(j.found[:min(n, len(j.found))], " ") }

func (j judgement) verb(p verbs) (opaque bool) {
	one, two := j.words(1), ""
	if len(j.found) > 1 {
		two = j.found[0] + "-" + j.found[1]
	}
	for _, object := range j.found[min(len(j.found), 1):] {
		j.Object(object)
	}
	is := func(list string) bool {
		s := word.Set(list)
		return s[one] || two != "" && s[two] || len(j.found) == 1 && s[one+"."]
	}
	switch {
	case one == "" && p.bare && len(j.args) == 0:
	case is(p.lost):
		j.Effect(sallyport.EffectDestroy)
		j.lost("%s %s takes something away: it cannot be brought back", j.name, j.words(2))
	case is(p.high):
		j.changed("%s %s changes something", j.name, one)
	case j.name == "brew" && strings.ContainsAny(strings.Join(j.found, ""), "/:"):
		j.Effect(sallyport.EffectExecute)
		j.Add(sallyport.Critical, "brew %s runs the formula that it is given", one)
		return true
	case is(p.low):
		j.shows()
	default:
		j.Effect(sallyport.EffectExecute)
		j.Add(sallyport.Critical, "%s %s is not known to be harmless", j.name, one)
		return true
	}
	return false
}

func (j judgement) shows() {
	j.Effect(sallyport.EffectRead)
	if r := optionsOf(j.name).Read(j.args, false); r.Bad != "" {
		j.Add(sallyport.Critical, "%s %s is given option %s: it may run a program, write, or reach elsewhere", j.name, j.words(1), r.Bad)
		return
	}
}

// parameters are long options that are no more than members of a request: those
// of aws that are not its own, and those of what is only tried out.
var parameters = regexp.MustCompile(`^--[a-z0-9]+(?:-[a-z0-9]+)*$`)

// own are options by which a program writes, runs something, or reaches elsewhere.
var own = regexp.MustCompile(`^--(endpoint|cli-|no-verify|ca-bundle|debug|outfile|output-dir|post-renderer|plugin|kube-|kubeconfig|server|token|as($|-)|repository-(config|cache)|registry|ca-file|cert-file|key-file|pass-credentials|no-dry|insecure|tls-|certificate-authority|client-|editor|save-config|edit|windows-line|profile-output|proxy|host$|config$)`)

// Odd returns an option of a command that only shows something which is not on
// the list of those that are known to keep it so, or "". Programs without a list
// of their own have none that is odd.
func Odd(name string, args []word.Word) string {
	if name == "podman" || name == "docker-compose" {
		name = "docker"
	}
	o, ok := options[name]
	if !ok {
		return ""
	}
	if name == "aws" || word.Has(args, "--dry-run") {
		o = maps.Clone(o)
		for _, a := range args {
			if option, _, _ := strings.Cut(a.Text, "="); a.Known && parameters.MatchString(option) && !own.MatchString(option) {
				o[option] = word.Kind{Perhaps: true}
			}
		}
	}
	return o.Read(args, false).Bad
}
