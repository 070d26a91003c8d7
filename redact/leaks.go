package redact

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/viper"
	"github.com/zricethezav/gitleaks/v8/config"
)

// leakRules returns gitleaks' default rules. Only its rules are used, not its
// detector: we need byte offsets, linear time, and no way for the text itself
// to switch a rule off (gitleaks:allow). The rules are read through a viper of
// their own; the global one, its environment and its files are not touched.
func leakRules() (rules []config.Rule, global []*config.Allowlist, err error) {
	defer func() { // the patterns are compiled with MustCompile
		if r := recover(); r != nil {
			err = fmt.Errorf("gitleaks rules: %v", r)
		}
	}()
	v := viper.New()
	v.SetConfigType("toml")
	if err := v.ReadConfig(strings.NewReader(config.DefaultConfig)); err != nil {
		return nil, nil, fmt.Errorf("gitleaks rules: %w", err)
	}
	var raw config.ViperConfig
	if err := v.Unmarshal(&raw); err != nil {
		return nil, nil, fmt.Errorf("gitleaks rules: %w", err)
	}
	cfg, err := raw.Translate()
	if err != nil {
		return nil, nil, fmt.Errorf("gitleaks rules: %w", err)
	}
	for _, r := range cfg.GetOrderedRules() {
		// A rule without a pattern judges file names; there are none here.
		if r.Regex != nil && !r.SkipReport && len(r.RequiredRules) == 0 {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil, nil, fmt.Errorf("gitleaks rules: none found")
	}
	return rules, cfg.Allowlists, nil
}

// A leakRule is one of gitleaks' rules, ready to run.
type leakRule struct {
	config.Rule
	name   string // for people
	rank   rank
	global []*config.Allowlist
}

func (r *leakRule) spans(s string, spans []span) []span {
	for _, m := range r.Regex.FindAllStringSubmatchIndex(s, -1) {
		start, end := r.secret(m)
		for end > start && s[end-1] == '\n' {
			end--
		}
		if start >= end || r.Entropy != 0 && entropy(s[start:end]) <= r.Entropy {
			continue
		}
		if r.allowed(s, m, start, end) {
			continue
		}
		spans = append(spans, span{start: start, end: end, name: r.name, rank: r.rank})
	}
	return spans
}

// secret picks the part of a match that is the secret: the rule's group, or
// the first group that took part, or all of it.
func (r *leakRule) secret(m []int) (start, end int) {
	if g := 2 * r.SecretGroup; g > 0 && g+1 < len(m) && m[g] >= 0 {
		return m[g], m[g+1]
	}
	for i := 2; i+1 < len(m); i += 2 {
		if m[i] >= 0 && m[i+1] > m[i] {
			return m[i], m[i+1]
		}
	}
	return m[0], m[1]
}

func (r *leakRule) allowed(s string, m []int, start, end int) bool {
	for _, lists := range [...][]*config.Allowlist{r.global, r.Allowlists} {
		for _, a := range lists {
			if allows(a, s, m, start, end) {
				return true
			}
		}
	}
	return false
}

func allows(a *config.Allowlist, s string, m []int, start, end int) bool {
	target := s[start:end]
	switch a.RegexTarget {
	case "match":
		target = s[m[0]:m[1]]
	case "line":
		target = line(s, m[0], m[1])
	}
	pattern := a.RegexAllowed(target)
	word, _ := a.ContainsStopWord(s[start:end])
	if a.MatchCondition != config.AllowlistMatchAnd {
		return pattern || word
	}
	// Commits and paths can never be fulfilled: there are none here.
	return len(a.Commits) == 0 && len(a.Paths) == 0 &&
		(len(a.Regexes) == 0 || pattern) && (len(a.StopWords) == 0 || word)
}

// maxLine bounds how far the line around a match is looked at, so that many
// matches on one endless line stay linear.
const maxLine = 512

func line(s string, start, end int) string {
	from, to := max(0, start-maxLine), min(len(s), end+maxLine)
	if i := strings.LastIndexByte(s[from:start], '\n'); i >= 0 {
		from += i + 1
	}
	if i := strings.IndexByte(s[end:to], '\n'); i >= 0 {
		to = end + i
	}
	return s[from:to]
}

// entropy is Shannon's, in bits per byte.
func entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	var h float64
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}
