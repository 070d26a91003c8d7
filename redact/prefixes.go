package redact

import (
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/regexp"
)

// prefixed are secrets that say themselves what they are. gitleaks knows most of
// them at one exact length, and lets some off that look invented; a prefix that
// nothing else has needs neither.
var prefixed = []struct {
	name, pattern string
	words         []string
}{
	{"github token", `\b(?:github_pat_[A-Za-z0-9_]{30,255}|gh[pousr]_[A-Za-z0-9]{30,255})`, []string{"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"}},
	{"model provider key", `\bsk-(?:proj|svcacct|admin|ant|or)-[A-Za-z0-9_-]{20,255}`, []string{"sk-proj-", "sk-svcacct-", "sk-admin-", "sk-ant-", "sk-or-"}},
	{"npm token", `\bnpm_[A-Za-z0-9]{36}\b`, []string{"npm_"}},
	{"age secret key", `\bAGE-SECRET-KEY-1[0-9A-Z]{40,255}`, []string{"age-secret-key-1"}},
	{"agent secret", `\bsps_[A-Za-z0-9_-]{40,255}`, []string{"sps_"}},
	{"password hash", `\$(?:1|2[abxy]|5|6|7|y|gy|argon2id?)\$[./A-Za-z0-9$=,+-]{20,255}`, []string{"$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$argon2"}},
	{"netrc password", `(?i)\bmachine\s+\S{1,255}\s+login\s+\S{1,255}\s+password\s+(\S{1,255})`, []string{"machine"}},
}

func prefixRules() []leakRule {
	out := make([]leakRule, 0, len(prefixed))
	for _, p := range prefixed {
		out = append(out, leakRule{Rule: config.Rule{RuleID: p.name, Regex: regexp.MustCompile(p.pattern), Keywords: p.words}, name: p.name, rank: rankGeneric}) // where gitleaks knows better what it is, its name stands
	}
	return out
}
