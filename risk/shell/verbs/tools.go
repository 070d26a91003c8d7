package verbs

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
	"sallyport.dev/sallyport/risk/shell/word"
)

// Redis judges redis-cli by the command that it is given.
func Redis(l *finding.List, args []word.Word) {
	j := judgement{List: l}
	looks := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		if redisValues[a.Text] {
			i++
			continue
		}
		if redisLooks[a.Text] {
			looks = true
			continue
		}
		if a.Option() {
			if !redisPrints[a.Text] {
				j.unknown("redis-cli is given option %s, which is not known to be harmless", a.Text)
			}
			continue
		}
		switch strings.ToUpper(a.Text) {
		case "GET", "MGET", "KEYS", "SCAN", "TTL", "PTTL", "TYPE", "EXISTS", "INFO", "PING", "DBSIZE", "HGET", "HGETALL", "LRANGE", "LLEN",
			"SMEMBERS", "SCARD", "SISMEMBER", "SSCAN", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZCARD", "ZCOUNT", "ZSCORE", "ZRANK", "ZSCAN", "STRLEN", "XLEN", "XRANGE", "XREVRANGE", "XINFO", "XPENDING", "TIME",
			"HKEYS", "HVALS", "HLEN", "HMGET", "HEXISTS", "HSCAN", "LINDEX", "GETRANGE", "GETBIT", "BITCOUNT", "RANDOMKEY", "ECHO", "LASTSAVE", "ROLE", "PFCOUNT", "EXPIRETIME":
		case "SLOWLOG", "MEMORY", "CONFIG", "CLIENT", "OBJECT", "CLUSTER", "LATENCY", "COMMAND", "ACL", "PUBSUB":
			if two := strings.ToUpper(args[min(i+1, len(args)-1)].Text); !redisShows[strings.ToUpper(a.Text)+"-"+two] {
				j.unknown("redis: %s %s is not known to be harmless", a.Text, two)
			}
		case "FLUSHALL", "FLUSHDB", "DEL", "UNLINK", "SHUTDOWN", "GETDEL", "LPOP", "RPOP", "SPOP", "ZREM", "SREM", "HDEL", "XTRIM", "LTRIM":
			j.lost("redis: %s takes values away for good", strings.ToUpper(a.Text))
		case "SET", "SETEX", "INCR", "DECR", "HSET", "LPUSH", "RPUSH", "SADD", "ZADD", "EXPIRE", "PERSIST", "PUBLISH", "APPEND", "MSET", "SETNX":
			j.Add(sallyport.High, "redis: %s changes values", strings.ToUpper(a.Text))
		default:
			j.unknown("redis: %s is not known to be harmless", a.Text)
		}
		return
	}
	if !looks {
		j.unknown("redis-cli runs what it reads on its input")
	}
}

// redisShows are the commands of two words that only show something.
var redisShows = word.Set(`SLOWLOG-GET SLOWLOG-LEN MEMORY-USAGE MEMORY-STATS MEMORY-DOCTOR CONFIG-GET CLIENT-LIST CLIENT-INFO CLIENT-ID CLIENT-GETNAME OBJECT-ENCODING OBJECT-IDLETIME OBJECT-FREQ OBJECT-REFCOUNT
	CLUSTER-INFO CLUSTER-NODES CLUSTER-SLOTS CLUSTER-SHARDS LATENCY-LATEST LATENCY-HISTORY LATENCY-DOCTOR COMMAND-COUNT COMMAND-DOCS COMMAND-LIST ACL-LIST ACL-WHOAMI ACL-USERS ACL-CAT PUBSUB-CHANNELS PUBSUB-NUMSUB`)

// redisValues are options of redis-cli that take a value, redisLooks those that
// make it go through keys or wait, and only show what it finds; redisPrints say how.
var (
	redisValues = word.Set(`-h -p -n -a -u --user --pass --pattern --count --type -i`)
	redisPrints = word.Set(`--raw --no-raw --csv --json --no-auth-warning --tls --insecure --quoted-input --quoted-pattern --verbose -c -2 -3 -e`)
	redisLooks  = word.Set(`--scan --bigkeys --memkeys --hotkeys --stat --latency --latency-history --latency-dist --intrinsic-latency`)
)

// Firewall judges the programs that show, add or drop rules of a firewall.
func Firewall(l *finding.List, args []word.Word) {
	j := judgement{List: l}
	first := ""
	if len(args) > 0 && args[0].Literal() {
		first = args[0].Text
	}
	switch {
	case slices.ContainsFunc(args, func(a word.Word) bool { return strings.ContainsAny(a.Text, ";\n{") }):
		j.Effect(sallyport.EffectPrivileges)
		j.unknown("gives the firewall more than one order")
	case word.Has(args, "-Z", "--zero"):
		j.changed("sets the firewall's counters to nothing")
	case first == "-L" || first == "-S" || first == "--list" || first == "status" || first == "list" || first == "--list-all" || strings.HasPrefix(first, "-nvL") || first == "-nL":
	case slices.ContainsFunc(args, func(a word.Word) bool {
		return a.Text == "-F" || a.Text == "--flush" || a.Text == "flush" || a.Text == "reset" || a.Text == "disable" || a.Text == "delete" || a.Text == "-X" || a.Text == "-P" || a.Loose
	}):
		j.Effect(sallyport.EffectPrivileges)
		j.unknown("takes the firewall's rules away")
	default:
		j.Effect(sallyport.EffectPrivileges)
		j.changed("changes the firewall")
	}
}

var ipLooks = word.Set(`-4 -6 -0 -a -all -br -brief -c -color -color=auto -d -details -f -family -h -human -j -json -o -oneline -p -pretty -r -resolve -s -ss -stats -statistics -t -timestamp`)

// ipVerbs are the words by which an object of ip is shown. ip takes any beginning of a
// word, and for link, tunnel and others s is set.
var (
	ipVerbs  = word.Set(`show sho sh list lst lis li l ls get help`)
	ipShorts = word.Set(`a ad add addr addre addres address r ro rou rout route n ne nei neig neigh neighb neighbo neighbor neighbour ru rul rule`)
)

// IP judges ip, whose words show or change the network.
func IP(l *finding.List, args []word.Word) {
	j := judgement{List: l}
	var words []string
	for i, a := range args {
		switch {
		case a.Loose || a.Option() && !ipLooks[a.Text]:
			j.unknown("ip is given an option that is not known to be harmless")
			return
		case !a.Option() && (i == 0 || !args[i-1].Is("-f", "-family")):
			words = append(words, a.Text)
		}
	}
	if len(words) > 1 && words[0] != "monitor" && !ipVerbs[words[1]] && (words[1] != "s" || !ipShorts[words[0]]) {
		j.unknown("changes the network")
	}
}

func (j judgement) unknown(format string, args ...any) {
	j.Effect(sallyport.EffectOpaque)
	j.Add(sallyport.Critical, format, args...)
}
