package risk

import (
	"encoding/json"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/message"
	"sallyport.dev/sallyport/risk/money"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/web"
)

// A gathering is what the declared arguments of one call say together: a method
// and an address are one request, amounts and accounts one transfer.
type gathering struct {
	engine *sitting
	found  *finding.List
	judged bool // something said what the call does

	request   web.Request
	method    bool
	cluster   cloud.Request
	asks      bool // of a cluster
	transfers []money.Transfer
	moves     bool // an amount is declared
	currency  string
	accounts  []string
	message   message.Message
	tells     bool // a subject, body or attachment is declared
}

// fields judges what the manifest points at. It reports whether anything there
// says what the call does; a path or a URL alone does not.
func (e *sitting) fields(l *finding.List, fields []sallyport.RiskField, doc any) bool {
	g := &gathering{engine: e, found: l}
	for _, f := range fields {
		switch f.Kind {
		case "amount":
			g.moves = true
		case "subject", "body", "attachment":
			g.tells = true
		}
	}
	for _, f := range fields {
		if twin := twinOf(doc, f.Path); twin != "" {
			l.Add(sallyport.Critical, "has an argument %q: a server that ignores case may take it for the one at %s", twin, f.Path)
		}
		for _, v := range all(doc, f.Path) {
			f.Path = v.path
			g.take(f, v.value)
		}
	}
	g.judgeRequest()
	g.judgeTransfers()
	g.judgeMessage()
	if g.asks {
		g.judged = true
		l.Merge(cloud.Ask(g.cluster))
	}
	return g.judged
}

// take notes, or judges, the value of one declared argument.
func (g *gathering) take(f sallyport.RiskField, v any) {
	e, l := g.engine, g.found
	switch f.Kind {
	case "sql":
		g.judged = true
		e.each(l, f, v, func(text string) sallyport.Risk { return e.sql(f.Dialect, text) })
	case "shell":
		g.judged = true
		if list, ok := v.([]any); ok {
			v = argv(list)
		}
		e.each(l, f, v, e.shell)
	case "cloud":
		g.judged = true
		if list, ok := v.([]any); ok && len(list) > 0 {
			if words := leaves(nil, list, 0); len(words) == len(list) {
				if r, ok := cloud.Command(words); ok {
					l.Merge(r)
					return
				}
			}
		}
		e.each(l, f, v, e.cloud)
	case "kubernetes":
		g.judged = true
		g.kubernetes(f, v)
	case "path":
		g.judged = pathField(l, f, v) || g.judged
	case "http_method", "url", "http_headers", "http_body", "kubernetes_verb", "kubernetes_resource":
		g.takeRequest(f, v)
	case "amount", "currency", "account", "recipient", "subject", "body", "attachment":
		g.takeSent(f, v)
	case "reference": // content elsewhere, which a witness binds
		l.Object(scalar(l, f, v))
	case "inert": // the operator's word that it has no effect
	default:
		g.judged = true
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the manifest declares %s as %q, which the analyser does not know", f.Path, f.Kind)
	}
}

func (g *gathering) takeRequest(f sallyport.RiskField, v any) {
	switch f.Kind {
	case "http_method":
		g.judged, g.method = true, true
		g.request.Method = text(g.found, f, v)
	case "url":
		g.request.URL = text(g.found, f, v)
	case "http_headers":
		g.request.Headers = headers(g.found, f, v)
	case "http_body":
		if s, ok := v.(string); ok {
			g.request.Body = s
		} else {
			g.request.Body = asJSON(v)
		}
	case "kubernetes_verb":
		g.asks, g.cluster.Verb = true, text(g.found, f, v)
	case "kubernetes_resource":
		g.asks, g.cluster.Resource = true, text(g.found, f, v)
	}
}

// takeSent notes what makes a transfer or a message.
func (g *gathering) takeSent(f sallyport.RiskField, v any) {
	l := g.found
	switch f.Kind {
	case "amount":
		t := money.Transfer{Path: f.Path, Scale: f.Scale, Reversible: f.Reversible}
		switch v := v.(type) {
		case json.Number:
			t.Amount, t.Number = v.String(), true
		case string:
			t.Amount = v
		default:
			wrongType(l, f, v)
		}
		g.transfers = append(g.transfers, t)
	case "currency":
		g.currency = text(l, f, v)
	case "account":
		g.paid(f, v)
	case "recipient":
		if g.moves && !g.tells {
			g.paid(f, v)
			return
		}
		for _, s := range textsOf(l, f, v) {
			g.message.Recipients = append(g.message.Recipients, message.Field{Path: f.Path, Text: s})
		}
	case "subject":
		g.message.Subject = scalar(l, f, v)
	case "body":
		g.message.Body += strings.Join(leaves(nil, v, 0), "\n") + "\n"
	case "attachment":
		g.message.Attachments = append(g.message.Attachments, names(v)...)
	}
}

// paid notes who gets the money, each by itself.
func (g *gathering) paid(f sallyport.RiskField, v any) {
	if all, ok := v.([]any); ok {
		g.accounts = append(g.accounts, leaves(nil, all, 0)...)
		return
	}
	g.accounts = append(g.accounts, scalar(g.found, f, v))
}

func (g *gathering) kubernetes(f sallyport.RiskField, v any) {
	switch v := v.(type) {
	case map[string]any:
		g.found.Merge(cloud.Object(plainJSON(v)))
	case string:
		words := strings.Fields(v)
		if len(words) > 0 && words[0] != "kubectl" && words[0] != "oc" && words[0] != "helm" {
			words = append([]string{"kubectl"}, words...)
		}
		if r, ok := cloud.Command(words); ok && !cloud.IsManifest(v) {
			g.found.Merge(r)
			return
		}
		g.found.Merge(cloud.Manifest(v))
	case []any:
		for _, item := range v {
			g.kubernetes(f, item)
		}
	default:
		wrongType(g.found, f, v)
	}
}

func (g *gathering) judgeRequest() {
	switch {
	case g.method:
		g.found.Merge(g.engine.request(g.request))
	case g.request.URL != "":
		g.request.Method = "GET"
		if r := g.engine.request(g.request); r.Level > sallyport.Low {
			g.found.Merge(r)
		} else {
			g.found.Effect(sallyport.EffectNetwork)
			for _, o := range r.Objects {
				g.found.Object(o)
			}
		}
	}
}

func (g *gathering) judgeTransfers() {
	if !g.moves {
		if len(g.accounts) > 0 {
			g.found.Effect(sallyport.EffectMoney)
			g.found.Add(sallyport.High, "is about the account %s", strings.Join(g.accounts, ", "))
		}
		return
	}
	g.judged = true
	if len(g.transfers) == 0 {
		g.found.Effect(sallyport.EffectMoney)
		g.found.Add(sallyport.Critical, "moves an amount that is not told: the server has its own idea of it")
	}
	currencies := map[string]bool{}
	for _, t := range g.transfers {
		t.Currency, t.Recipients = g.currency, g.accounts
		r := money.Judge(t)
		for _, a := range r.Amounts {
			currencies[a.Currency] = true
		}
		g.found.Merge(r)
	}
	if len(currencies) > 1 {
		g.found.Add(sallyport.Critical, "moves money in several currencies at once")
	}
}

func (g *gathering) judgeMessage() {
	if !g.tells && len(g.message.Recipients) == 0 {
		return
	}
	g.judged = true
	g.message.Internal = g.engine.internal
	g.found.Merge(message.Judge(g.message))
}

// pathField judges a path, or each of a list, by the effect that the manifest
// declares. It reports whether that says what the call does.
func pathField(l *finding.List, f sallyport.RiskField, v any) bool {
	use, ok := paths.UseOf(f.Effect)
	if !ok {
		l.Add(sallyport.Critical, "the manifest declares the effect of %s as %q, which the analyser does not know", f.Path, f.Effect)
		return true
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		if name, ok := item.(string); ok {
			paths.Judge(l, use, name)
			if use != paths.Names && use != paths.Reads {
				l.Part(f.Path, "path", name)
			}
		} else {
			wrongType(l, f, item)
		}
	}
	return use != paths.Names
}
