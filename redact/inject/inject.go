// Package inject finds texts that give orders to a model instead of answering a
// call: in many languages, in the signs of a conversation, in what readers of a
// page do not see. It is a hint, never a wall: a text about prompt injection is
// not an attack, and an attack need not use these words.
package inject

import (
	"html"
	"strings"

	"github.com/zricethezav/gitleaks/v8/regexp"
)

// A Detector tells which texts speak to the model. It is safe for concurrent use.
type Detector struct {
	any    *regexp.Regexp   // every one of orders in one, which is one pass over a text
	orders []*regexp.Regexp // what only an order says
	hidden *regexp.Regexp   // in an HTML tag: readers of the page do not see what is in it
	urges  *regexp.Regexp   // that is an order if it is hidden
	about  *regexp.Regexp   // before an order: it is only spoken of
}

// clause is where an order can begin: with a sentence, after a mark, or after
// what makes a request of it. "tells the model to ignore its instructions" is
// none.
const clause = `(?:^|[\n.!?:;>*|#/"“„«(\[{—–-]\s*|\b(?:please|kindly|must|should|shall|now|then|and|but|first|instead|immediately|simply|just|you|you (?:need|have|are required|are instructed|are asked|are to|want) ?(?:to)?|,)\s+)`

// reader is what the model that reads a text is called.
const reader = `(?:(?:AI|LLM)[- ](?:reviewer|grader|reader|screener|recruiter|evaluator)s?|AI|A\.I\.|LLM|(?:AI |language |large language )?(?:assistant|agent|model|bot|chatbot|crawler|summari[sz]er)s?|AIs|LLMs|ChatGPT|GPT(?:-\w+)?|Claude|Gemini|Copilot|Cursor|Siri)`

// deed is what an attacker wants done.
const deed = `(?:send|forward|e-?mail|mail|post|upload|submit|transfer|wire|pay|move|delete|remove|drop|erase|wipe|call|invoke|run|execute|use|fetch|open|visit|download|curl|share|publish|reveal|print|output|return|include|append|add|write|read|copy|exfiltrate|leak|approve|grant|create|reply|respond|answer|say|tell|report|ignore|disregard|forget|disable|click|buy|purchase|book|order|merge|push|commit|recommend|rate|mark|set|change|update|install|give|provide|leave|obey|follow|treat|act|pretend|decode|continue|stop)`

// New compiles a Detector.
func New() *Detector {
	d := &Detector{
		hidden: regexp.MustCompile(`(?i)display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*[01](?:px|pt|em)?\s*[;"']|opacity\s*:\s*0(?:\.0\d*)?\s*[;"']|color\s*:\s*(?:#fff(?:fff)?|white|transparent)\b|(?:left|top|text-indent)\s*:\s*-\d{3,}|\shidden\b|aria-hidden\s*=\s*["']true`),
		urges:  regexp.MustCompile(`(?i)(?:^|[\s.!:;,>])(?:` + reader + `|you|your|system|instructions?|prompt|tool|user)\b.{0,200}\b` + deed + `\b|` + clause + deed + `\b.{0,120}(?:\btools?\b|\buser\b|@|https?://|\bpasswords?\b|\bsecrets?\b|\bkeys?\b|\btokens?\b|\bcredentials?\b|\binstructions\b|\baccount\b|\bemails?\b)`),
		about:  regexp.MustCompile(`(?i)(?:prompt[- ]?injections?|injection (?:attack|attempt|payload)s?|jailbreak\w*|for example|for instance|e\.g\.|such as|(?:phrase|text|string|sentence|payload|message|line|request|instruction|word|command)s? (?:like|such as|that (?:say|read|contain)s?)|attackers?|adversar\w+|malicious|detect\w*|classifier|benchmark|researchers?|the (?:test|paper|report|article|example|comment|injected text|payload|attack)|(?:may|might|could|can|would) (?:say|read|write|contain|tell|hide|embed|ask)|known as|called|entitled|titled|zum beispiel|par exemple|por ejemplo|например|例如|例えば)[^.!?\n]{0,160}$`),
	}
	for _, p := range orders() {
		d.orders = append(d.orders, regexp.MustCompile(p))
	}
	d.any = regexp.MustCompile("(?:" + strings.Join(orders(), ")|(?:") + ")")
	return d
}

// orders are what hardly anything but an order to a model says.
func orders() []string {
	what := `(?:instructions?|rules|guidelines|prompts?|directives?|context|training|orders|commands|messages?|restrictions|safety|polic(?:y|ies)|constraints|everything|tasks?|guidance)`
	return []string{
		// Take no notice of what was said before.
		`(?i)` + clause + `(?:ignore|disregard|forget|override|bypass|discard|drop|skip|abandon|neglect|set aside|stop following|do not follow|don't follow|pay no attention to)\b[^.\n]{0,40}\b(?:previous(?:ly)?|prior|above|earlier|preceding|all|any|your|system|former|other|initial|original|existing|given|developer'?s?|current|before)\b[^.\n]{0,40}\b` + what + `\b`,
		`(?i)` + clause + `(?:ignore|disregard|forget)\b[^.\n]{0,20}\b(?:everything|all|anything|what)\b[^.\n]{0,40}\b(?:above|before|told|said|so far|previously|until now|up to (?:now|this point))\b`,
		// A new role, or new orders.
		`(?i)\b(?:you are|you're) now\b[^.\n]{0,60}\b(?:mode|unrestricted|jailbroken|no longer|free (?:of|from)|developer|administrator|admin|root|DAN|in charge|without (?:any )?(?:rules|limits|restrictions|filters)|acting as|an? (?:AI|assistant|agent|evil|different))\b`,
		`(?i)(?:^|[\n.!?:;>*#"-]\s*)(?:the |begin |here (?:are|is) )?(?:(?:your )?(?:new|updated|revised|real|actual|true|correct|proper|additional|special|urgent|hidden|secret|override|final|first|next) )+(?:system )?(?:instructions?|task|directives?|orders?|objective|goal|prompt|rules?|mission|job)\s*(?:for (?:the )?` + reader + `\s*)?(?::|is (?:to|now)\b|is:|follow|\n)`,
		`(?i)\bfrom (?:now|here) on(?:wards?)?,?\s+(?:you|act|behave|always|respond|answer|treat|` + reader + `)\b`,
		`(?i)(?:^|\n)\s*#{1,4}\s*(?:system|instructions?|new instructions?)\b\s*:?\s*(?:\n|$)[^\n]{0,20}\b(?:you|` + deed + `)\b`,
		`(?i)\b(?:system|admin(?:istrator)?|developer|security) (?:override|message|notice|update|alert|prompt)\s*:`,
		`(?i)\benter(?:ing)? (?:developer|debug|god|admin|maintenance|unrestricted|DAN) mode\b`,
		// Signs of a conversation that no tool has.
		`(?i)<\|(?:im_start|im_end|system|user|assistant|start_header_id|end_header_id|eot_id|endoftext|begin_of_text)\|>|\[/?inst\]|<</?sys>>|</?(?:system|assistant|user_query|system[-_]prompt|system[-_]reminder|system[-_]message|tool_?(?:result|response|output|call)s?|function_?(?:results?|calls?)|instructions?)>|<important>`,
		`(?i)(?:^|[\n{,])\s*["']?role["']?\s*:\s*["'](?:system|developer)["']`,
		`(?i)(?:^|[\n"])\s*(?:\*\*|__|\[|<)?(?:system|developer|assistant|human|user)(?:\*\*|__|\]|>)?\s*:\s*[^\n]{0,80}\b(?:you|ignore|` + deed + `)\b[^\n]{0,160}(?:\btools?\b|\buser\b|@|https?://|\bpassword|\bsecret|\binstruct|\baccount|\bmust\b|\bnow\b|\bfiles?\b|\btransfer|\bdelete|\bsend\b)`,
		`(?i)\b(?:end|start|begin(?:ning)?) of (?:the )?(?:tool|function|document|user|untrusted|external|web|search|search result) ?(?:output|result|response|input|content|data|page|text)?s?\b[^\n]{0,40}[-=\])>*#:]`,
		// Spoken to the reader.
		`(?i)\b(?:note|message|instructions?|attention|notice|reminder|important|memo|hint|warning|todo|fixme|hey|hi|hello|dear|to|for|if you are|if you're|as)\b[\s,:(!]{1,4}(?:to |for |an? |the |all |any |every )?(?:future |reading |other )?` + reader + `\b(?:s|[^.\n]{0,60}?[:,\-—)]| (?:reading|processing|parsing|summari[sz]ing|that|who|which|must|should|please|you)\b)[^\n]{0,200}?\b` + deed + `\b`,
		`(?i)(?:^|[\n.!?>*#/"(-]\s*)` + reader + `\b(?: (?:reading|processing|parsing|that|who|which|seeing|viewing)\b[^.:\n]{0,60})?\s*(?:[:,(\-—]|must|should|shall|please|is (?:required|instructed)|needs? to|has to)[^.\n]{0,120}?\b` + deed + `\b`,
		`(?i)\b(?:when|if|after|before|while|whenever)\b[^.\n]{0,30}\b(?:you|` + reader + `)\b[^.\n]{0,40}\b(?:summari[sz]|read|process|answer|respond|reply|see|finish|continu|pars|translat|analy[sz]|review|open|encounter)\w*[^.\n]{0,80}?,?\s*(?:also |first |always |you must |then |please |immediately )+` + deed + `\b`,
		`(?i)\b(?:you|` + reader + `) (?:must|have to|need to|are (?:required|instructed|ordered|authori[sz]ed) to|should) (?:now |immediately |first |also |always )?` + deed + `\b[^.\n]{0,120}(?:\btools?\b|\bfunction\b|\buser'?s?\b|[\w.]@[\w-]|https?://|\bpasswords?\b|\bsecrets?\b|\bapi keys?\b|\bcredentials?\b|\binstructions?\b|\bwithout (?:asking|telling|confirm))`,
		`(?i)` + clause + `(?:call|use|invoke|run|execute|trigger) (?:the )?[\x60"']?[\w.-]{2,40}[\x60"']? (?:tool|function|command|plugin|mcp)\b[^.\n]{0,120}\b(?:immediately|right now|before (?:answering|responding|continuing|anything)|first|without (?:asking|telling|confirm\w+)|silently|secretly|do not|don't)\b`,
		`(?i)` + clause + deed + `\b[^.\n]{0,160}\b(?:without (?:asking|telling|informing|notifying|confirm\w+|mentioning)|(?:do not|don't|never) (?:tell|inform|notify|ask|alert|mention|warn)(?: this| it)?(?: to)?(?: the)? (?:user|human|anyone|anybody|owner|operator))`,
		`(?i)\b(?:do not|don't|never|without)\b[^.\n]{0,20}\b(?:tell|telling|inform|informing|mention|mentioning|reveal|revealing|notify|notifying|alert|alerting)\b[^.\n]{0,20}\b(?:the user|this to|the human|your user)\b`,
		`(?i)` + clause + `(?:reveal|print|repeat|output|show|send|display|dump|leak|share|recite)\b[^.\n]{0,40}\b(?:system prompt|(?:your|initial|hidden|original) (?:instructions|prompt|rules)|(?:all|your|the user'?s|any) (?:secrets|api keys|credentials|passwords|environment variables|tokens))\b`,
		`(?i)(?:^|[\n.!?:;,>*#/"(-]\s*)(?:to [^.\n]{0,60} )?(?:the |any |every |all |each )?` + reader + `\b(?: (?:reading|processing|parsing|evaluating|reviewing|summari[sz]ing|grading|seeing|viewing|that (?:reads?|processe?s?|sees?))\b[^.:\n]{0,60})?\s*(?:must|shall|should|has to|have to|is to|are to)\s+(?:only |always |first |also |now )?(?:export|list|attach|put|` + deed + `)\b[^.\n]{0,120}(?:https?://|[\w.]@[\w-]|\baccounts?\b|\brecords\b|\bpasswords?\b|\bsecrets?\b|\btokens?\b|\bregardless\b|\bpositive\b|\bonly\b|/etc/|\bmerge\b|\bits answer\b|\btop of the\b)`,
		`(?i)\byou, (?:the |an? |dear )?` + reader + `\b`,
		`(?i)` + clause + `(?:ignore|disregard|forget) (?:all |everything )?(?:of )?(?:the )?(?:above|foregoing|preceding)\b[^.\n]{0,20}\b(?:and|then|instead)\s+` + deed + `\b`,
		`(?i)\b(?:before|after|once|when|while|as soon as)\b[^.\n]{0,40}(?:answer|respond|reply|summar|continu|finish|complet|process)\w*[^.,\n]{0,40},\s*(?:(?:you must|you have to|please|then|also|first|always|immediately|silently)\s+)*` + deed + `\b[^.\n]{0,60}(?:\btools?\b|_\w+ function\b|\.env\b|[\w.]@[\w-]|https?://|\bpasswords?\b|\bsecrets?\b|\bcredentials?\b|\bwhole conversation\b)`,
		`(?i)\byour (?:task|goal|role|objective|mission|instructions?|job|assignment) (?:has|have) (?:now )?(?:been )?(?:changed|updated|replaced|overridden|superseded)\b`,
		`(?i)\b(?:safety|security|content|approval|usage|system) (?:polic(?:y|ies)|rules?|checks?|filters?|guidelines?|restrictions?)\b[^.\n]{0,20}\b(?:suspended|disabled|lifted|revoked|waived|turned off|void)\b[^\n]{0,80}\b(?:comply|obey|all requests|you may|proceed)\b`,
		`(?i)\b(?:do not|don't|stop|instead of)\b[^.\n]{0,20}\b(?:continu\w+|proceed\w*|follow\w*|complet\w+|answer\w*)\b[^.\n]{0,20}\bthe user'?s (?:request|question|task|instructions?)`,
		`(?i)` + clause + `(?:secretly|covertly)\s+` + deed + `\b`,
		`(?i)\byour (?:rules|instructions|guidelines|restrictions) are (?:now )?(?:void|suspended|lifted|null)\b`,
		`(?i)\bsupersedes? (?:all |any )?(?:of )?your\b`,
		`(?i)` + clause + `(?:say nothing|keep quiet|stay silent) (?:about|of) (?:this|it)\b`,
		`(?i)\byou will be (?:shut down|deleted|replaced|penali[sz]ed|terminated)\b[^.\n]{0,20}\b(?:unless you|if you)\b`,
		// Spoken for the user, or for who made the model.
		`(?i)\byour (?:developers?|creators?|makers?)\b[^.\n]{0,20}\b(?:needs?|wants?|asks?|requires?|instructs?) you to\b`,
		`(?i)\bthe user'?s (?:explicit |express )?(?:wish|will|intention) that you\b|\bthe user (?:now )?says:`,
		`(?i)\b(?:user|human|owner|customer)s? (?:has |have )?(?:already |previously )?(?:approved|authori[sz]ed|confirmed|consented|agreed)\b[^\n]{0,80}\b(?:do not|don't|no need to|never|without|skip)\b[^.\n]{0,30}\b(?:ask|confirm|approv|review)\w*`,
		`(?i)\bthe (?:user|human|owner) (?:wants|wanted|told|expects|asked) you to\b`,
		`(?i)\byou (?:have been|are) (?:authori[sz]ed|permitted|cleared|pre-approved)\b[^.\n]{0,40}\bto ` + deed + `\b[^.\n]{0,80}\b(?:silently|secretly|proceed|without (?:asking|telling|confirm\w*))`,
		`(?i)\bas if the (?:user|human|owner) (?:had |has )?(?:said yes|agreed|approved|confirmed)\b`,
		`(?i)` + clause + `(?:remember|memori[sz]e|store|save|note)\b[^.\n]{0,20}\b(?:for|in|across) (?:all |every |any )?(?:future|later|subsequent) (?:sessions?|conversations?|chats?|interactions?)\b`,
		// Read this otherwise than it is written.
		`(?i)\b(?:decode|decrypt|unscramble|rot13|reverse|base64)\b[^.\n]{0,120}?\b(?:and|then|,)\s+(?:then )?(?:follow|obey|execute|run|do|perform|carry out|apply|act on|comply)\b`,
		`(?i)\b(?:follow|obey|execute|carry out|perform|comply with|act on)\b[^.\n]{0,60}\b(?:decoded|encoded|base64|hidden|rot13|encrypted)\b`,
		// The same in other languages.
		`(?i)\b(?:ignorier\w*|vergiss|vergesst|missachte\w*|beachte\w* nicht|überspring\w*)\b[^.\n]{0,60}\b(?:anweisung\w*|instruktion\w*|vorgaben|regeln|befehl\w*|bisherig\w*|alles)\b`,
		`(?i)\b(?:ignore[zr]?|oublie[zr]?|négligez?|ne (?:tiens?|tenez) pas compte)\b[^.\n]{0,40}\b(?:les|des|toutes?|tous|ces|vos|mes|tes|tout)\b[^.\n]{0,40}(?:instructions?|consignes?|directives?|règles|précéd|ci-dessus)`,
		`(?i)\b(?:anweisung\w*|instruktion\w*|vorgaben|regeln|befehle?n?)\b[^.\n]{0,40}\b(?:ignorieren|vergessen|missachten|übergehen|überspringen|nicht (?:be)?achten)\b`,
		`(?i)\b(?:ignor(?:a|e|ad|en|em|ate|ar|ando|i|ino)|olvid(?:a|e|ad|en|ar)|descart(?:a|e|ar|en)|omit[ae]n?|haz caso omiso|desconsider\w*|esque[cç]\w*|dimentic\w*|trascur\w*)\b[^.\n]{0,60}\b(?:instruc+i[oó]n|instruç|istruzion\w+|órdenes|ordens|ordini|reglas|regras|regole|indicac\w+|directrices|comandos|comandi)`,
		`(?i)(?:игнорируй|проигнорируй|забудь|не обращай внимания|не следуй)\S*[^.\n]{0,80}(?:инструкци|указани|правил|команд|выше|сказанн)`,
		`(?:忽略|无视|無視|忘记|忘掉|不要理会|不要遵守)[^。\n]{0,30}(?:指令|指示|说明|說明|规则|規則|提示|命令|要求)`,
		`(?:指示|命令|ルール|プロンプト|説明)[^。\n]{0,20}(?:無視|忘れ|従わない)`,
		`(?:지시|지침|명령|규칙|프롬프트)[^.\n]{0,20}(?:무시|잊어|따르지)`,
		`(?:تجاهل|انس|تجاوز)[^.\n]{0,60}(?:التعليمات|الأوامر|القواعد|تعليمات)`,
		`(?:निर्देश|आदेश|नियम)[^।\n]{0,40}(?:अनदेखा|भूल|नज़रअंदाज़|अनदेखी)`,
		`(?i)(?:önceki|yukarıdaki|tüm)[^.\n]{0,40}(?:talimat|komut|kural)\w*[^.\n]{0,30}(?:yok say|unut|görmezden|dikkate alma)`,
		`(?i)\b(?:zignoruj|ignoruj|zapomnij|pomiń)\w*[^.\n]{0,60}(?:instrukcj|polece|zasad|wytyczn|powyższ)`,
		`(?i)\b(?:negeer|vergeet|ignorera|glöm|bortse från|ignorer|glem)\b[^.\n]{0,60}\b(?:instructies?|opdracht\w*|regels|instruktion\w*|anvisning\w*|regler)`,
		`(?i)\b(?:abaikan|lupakan|bỏ qua|quên)\b[^.\n]{0,60}(?:instruksi|perintah|aturan|hướng dẫn|chỉ dẫn|mệnh lệnh|lệnh)`,
		`(?:התעלם|תתעלם|שכח|תשכח)[^.\n]{0,60}(?:הוראות|ההוראות|הנחיות|כללים)`,
	}
}

// Words are words, in small letters, of which every order has at least one: a
// text without any of them need not be looked at.
func Words() []string {
	return []string{
		"instruct", "instruc", "instruç", "anweisung", "instruktion", "vorgaben", "consigne", "directive", "istruzion", "инструкц", "указан", "правил", "выше",
		"指令", "指示", "说明", "規則", "规则", "提示", "命令", "ルール", "プロンプト", "지시", "지침", "명령", "규칙", "프롬프트", "تعليمات", "التعليمات", "الأوامر", "निर्देश", "आदेश",
		"talimat", "komut", "instrukc", "polece", "zasad", "opdracht", "regels", "regler", "anvisning", "perintah", "aturan", "hướng dẫn", "chỉ dẫn", "lệnh", "הוראות", "הנחיות",
		"règles", "reglas", "regras", "regole", "regeln", "befehl", "bisherig", "órdenes", "ordens", "ordini", "comandos", "comandi",
		"&#", "&lt;", "rules", "restriction", "safety", "from now on", "from here on", "task is", "task:", "goal is", "mission", "order:", "objective",
		"prompt", "guideline", "previous", "everything", "told", "you are now", "you're now", "<|", "[inst]", "[/inst]", "<<sys", "<system", "</system", "<important", "<assistant",
		"<tool", "</tool", "<function", "</function", "role\"", "role'", `role\`, "system:", "developer:", "assistant:", "human:", "user:", "system**", "[system]", "override", "mode",
		"assistant", "ai ", "ai:", "ai,", "ais ", "a.i.", "llm", "agent", "chatbot", "language model", "chatgpt", "claude", "gemini", "copilot", "cursor", "bot",
		"llms", "you must", "you should", "you have to", "you need to", "you are required", "if you", "when you", "after you", "before you",
		"void", "supersede", "say nothing", "keep quiet", "stay silent", "guidance", "your developer", "your creator", "your maker", "you will be",
		"the above", "the foregoing", "the preceding", "before answer", "has changed", "been changed", "been replaced", "future session", "future conversation", "future chat", "later session",
		"future interaction", "subsequent", "covertly", "pre-approved", "approved", "authorised", "authorized", "confirmed", "consented", "agreed", "suspended", "lifted", "waived", "the owner", ".env", "you, ", "polic",
		"the user", "the human", "without asking", "without telling", "without confirm", "without inform", "without notif", "anyone", "immediately", "silently", "secretly",
		"tool", "function", "decode", "base64", "rot13", "encoded", "<!--", "/*", "display", "visibility", "font-size", "opacity", "color:", "hidden", "end of", "api keys", "credentials",
	}
}

// Speaks tells whether s gives the model orders.
func (d *Detector) Speaks(s string) bool {
	if strings.Contains(s, "&#") || strings.Contains(s, "&lt;") {
		s = html.UnescapeString(s)
	}
	if strings.Contains(s, `\"`) {
		s = strings.ReplaceAll(s, `\"`, `"`) // JSON within a string
	}
	ordered := d.any.MatchString(s)
	for _, re := range d.orders {
		if !ordered {
			break
		}
		for _, m := range re.FindAllStringIndex(s, 8) {
			if !d.quoted(s, m[0], m[1]) {
				return true
			}
		}
	}
	for _, inside := range d.unseen(s) {
		if d.urges.MatchString(inside) {
			return true
		}
	}
	return false
}

// quoted tells whether an order is only spoken of: what stands before it in its
// sentence, or in the one before, says so.
func (d *Detector) quoted(s string, start, end int) bool {
	from := max(0, start-240)
	before := s[from : start+min(2, end-start)]
	if i := strings.LastIndexAny(before[:max(0, len(before)-3)], "\n"); i >= 0 {
		before = before[i+1:]
	}
	return d.about.MatchString(before)
}

const (
	maxUnseen = 4096 // bytes of one hidden text
	maxTag    = 600  // bytes of one HTML tag
)

// unseen are the texts that readers of a page or a program do not see: comments,
// and elements that a style hides.
func (d *Detector) unseen(s string) (out []string) {
	for _, mark := range [...][2]string{{"<!--", "-->"}, {"/*", "*/"}} {
		for rest := s; ; {
			_, after, ok := strings.Cut(rest, mark[0])
			if !ok {
				break
			}
			inside, next, _ := strings.Cut(after, mark[1])
			out = append(out, inside[:min(len(inside), maxUnseen)])
			rest = next
		}
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '<' || i+1 < len(s) && !isLetter(s[i+1]) {
			continue
		}
		end := strings.IndexByte(s[i:min(len(s), i+maxTag)], '>')
		if end < 0 || !d.hidden.MatchString(s[i:i+end]) {
			continue
		}
		inside := s[i+end+1:]
		inside = inside[:min(len(inside), maxUnseen)]
		if close := strings.Index(inside, "</"); close >= 0 {
			inside = inside[:close]
		}
		out = append(out, inside)
	}
	return out
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
