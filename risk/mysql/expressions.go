package mysql

import (
	"fmt"
	"regexp"
	"strings"

	"vitess.io/vitess/go/vt/sqlparser"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// nodes judges whatever is in a piece of a statement.
func (w *walk) nodes(n sqlparser.SQLNode) {
	if n == nil {
		return
	}
	// Names of WITH first: they are no tables.
	_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) {
		if c, ok := n.(*sqlparser.CommonTableExpr); ok {
			w.ctes[strings.ToLower(c.ID.String())] = true
		}
		return true, nil
	}, n)
	_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) { return w.node(n), nil }, n)
}

// node judges one node, and tells whether to look at what is in it.
func (w *walk) node(n sqlparser.SQLNode) bool {
	switch n := n.(type) {
	case nil:
		return false
	case *sqlparser.Select:
		w.locks(n.Lock)
		return w.into(n.Into)
	case *sqlparser.Union:
		w.locks(n.Lock)
		return w.into(n.Into)
	case sqlparser.TableName:
		w.table(n)
	case *sqlparser.ColName:
		w.column(n)
		return false
	case *sqlparser.StarExpr:
		return false
	case *sqlparser.FuncExpr:
		w.call(n)
	case *sqlparser.AssignmentExpr:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "sets a variable of the session")
	case *sqlparser.LockingFunc:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "takes, gives up or waits for a lock of the server")
	case *sqlparser.GTIDFuncExpr:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "waits for replication")
	case *sqlparser.Nextval:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "takes the next value of a sequence")
	case *sqlparser.IntroducerExpr:
		if !plainCharsets[strings.ToLower(strings.TrimPrefix(n.CharacterSet, "_"))] {
			w.found.Add(sallyport.High, "has a string in character set %s, which servers may read differently", n.CharacterSet)
		}
	default:
		if !harmless(n) && !w.lenient {
			w.unknown("uses %s, which the analyser does not know", strings.TrimPrefix(fmt.Sprintf("%T", n), "*sqlparser."))
		}
	}
	return true
}

var plainCharsets = set(`utf8 utf8mb3 utf8mb4 latin1 ascii binary`)

// functionsIn judges nothing but functions.
func (w *walk) functionsIn(n sqlparser.SQLNode) {
	_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) {
		switch n := n.(type) {
		case *sqlparser.FuncExpr:
			w.call(n)
		case *sqlparser.LockingFunc, *sqlparser.AssignmentExpr, *sqlparser.GTIDFuncExpr:
			w.node(n)
		case *sqlparser.AliasedTableExpr:
			if t, ok := n.Expr.(sqlparser.TableName); ok {
				w.table(t)
			}
		case *sqlparser.SelectInto:
			w.into(n)
		}
		return true, nil
	}, n)
}

func (w *walk) locks(lock sqlparser.Lock) {
	if lock != sqlparser.NoLock {
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "locks the rows that it reads")
	}
}

func (w *walk) into(n *sqlparser.SelectInto) bool {
	switch {
	case n == nil:
	case n.Type == sqlparser.IntoVariables:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "sets variables of the session")
	default:
		w.found.Effect(sallyport.EffectWrite)
		w.found.Object(strings.Trim(n.FileName, "'"))
		w.found.Lost("writes file %s on the server", n.FileName)
	}
	return true
}

func (w *walk) table(t sqlparser.TableName) {
	name := tableName(t)
	bare := strings.ToLower(t.Name.String())
	if name == "" || bare == "dual" || t.Qualifier.IsEmpty() && w.ctes[bare] {
		return
	}
	w.found.Object(name)
	switch {
	case secretTables[strings.ToLower(name)]:
		w.found.Add(sallyport.Medium, "reads %s, which holds credentials or other secrets", name)
	case finding.Secret(bare):
		w.found.Add(sallyport.Medium, "reads %s, which by its name holds secrets", name)
	}
}

var secretTables = set(`mysql.user mysql.global_priv mysql.servers mysql.proxies_priv mysql.slave_master_info mysql.general_log mysql.slow_log
	mysql.password_history information_schema.user_attributes performance_schema.replication_connection_configuration
	performance_schema.user_variables_by_thread`)

func (w *walk) column(n *sqlparser.ColName) {
	name := n.Name.String()
	if finding.Secret(name) || strings.EqualFold(name, "authentication_string") {
		w.found.Add(sallyport.Medium, "reads %s, which by its name is secret", name)
	}
}

func (w *walk) call(n *sqlparser.FuncExpr) {
	name := n.Name.Lowered()
	full := name
	if !n.Qualifier.IsEmpty() {
		full = n.Qualifier.String() + "." + name
	}
	switch {
	case n.Qualifier.IsEmpty() && functions[name]:
	case n.Qualifier.IsEmpty() && acts[name] != "":
		w.found.Effect(sallyport.EffectWrite)
		w.found.Add(sallyport.High, "calls %s, which %s", name, acts[name])
	case n.Qualifier.IsEmpty() && name == "load_file":
		w.found.Add(sallyport.Critical, "calls load_file, which reads a file of the server, which no table's privileges guard")
	case name == "last_insert_id" && n.Qualifier.IsEmpty():
		if len(n.Exprs) > 0 {
			w.found.Add(sallyport.High, "sets the session's last_insert_id")
		}
	case dropping.MatchString(full):
		w.found.Effect(sallyport.EffectExecute)
		w.found.Lost("calls %s, which is unknown and by its name takes something away", full)
	default:
		w.found.Effect(sallyport.EffectExecute)
		w.unknown("calls %s, which is not built in: what it does is unknown", full)
	}
}

// dropping are names of unknown functions that say what they are for.
var dropping = regexp.MustCompile(`(?i)(^|[._])(drop|delete|truncate|purge|destroy|erase|wipe)(_|$)`)

// acts are built-in functions that do more than compute.
var acts = map[string]string{
	"sleep": "holds the connection", "benchmark": "holds the server's processor",
	"get_lock": "takes a lock of the server", "release_lock": "gives up a lock", "release_all_locks": "gives up locks",
	"is_free_lock": "asks for a lock", "is_used_lock": "asks for a lock", "master_pos_wait": "waits for replication",
	"source_pos_wait": "waits for replication", "master_gtid_wait": "waits for replication", "wait_for_executed_gtid_set": "waits for replication",
	"nextval": "takes the next value of a sequence", "setval": "sets a sequence", "uuid_short": "counts up a number of the server",
}

// functions are built-in functions that only compute.
var functions = set(`abs acos addtime aes_decrypt aes_encrypt any_value asin atan atan2 bin bin_to_uuid bit_count ceil ceiling char_length
	character_length charset coalesce coercibility collation compress concat concat_ws connection_id conv convert_tz cos cot crc32
	curdate current_date current_role current_user database schema date datediff date_format date_add date_sub adddate subdate
	day dayname dayofmonth dayofweek dayofyear decode default degrees elt encode exp export_set field find_in_set floor
	format found_rows from_base64 from_days from_unixtime greatest hex hour if ifnull inet6_aton inet6_ntoa inet_aton inet_ntoa instr
	interval is_ipv4 is_ipv6 is_ipv4_compat is_ipv4_mapped is_uuid isnull json_array_append json_compact json_depth json_detailed
	json_exists json_length json_loose json_merge json_query json_type json_valid json_value last_day lcase least left length ln
	locate log log10 log2 lower lpad ltrim make_set makedate maketime md5 microsecond minute mod month monthname name_const
	natural_sort_key nullif nvl nvl2 oct octet_length ord period_add period_diff pi pow power quarter quote radians rand
	random_bytes repeat replace reverse right round row_count rpad rtrim sec_to_time second session_user sformat sha sha1 sha2 sign sin
	soundex space sqrt str_to_date strcmp subtime substring_index system_user tan time time_format time_to_sec timediff timestamp
	to_base64 to_char to_days to_seconds truncate ucase uncompress uncompressed_length unhex unix_timestamp upper user utc_date uuid
	uuid_to_bin version week weekday weekofyear year yearweek grouping
	st_area st_asgeojson st_astext st_aswkt st_contains st_distance st_distance_sphere st_dwithin st_equals st_intersects st_length
	st_srid st_touches st_within st_x st_y st_isvalid st_geomfromtext st_pointfromtext mbrcontains mbrwithin point
	json_overlaps json_schema_valid regexp_instr regexp_like regexp_replace regexp_substr median percentile_cont`)

// harmless tells whether a node is as harmless as what is in it.
func harmless(n sqlparser.SQLNode) bool {
	switch n.(type) {
	case *sqlparser.AliasedExpr, *sqlparser.AliasedTableExpr, *sqlparser.AndExpr, *sqlparser.AnyValue, *sqlparser.Argument,
		*sqlparser.ArgumentLessWindowExpr, *sqlparser.Avg, *sqlparser.BetweenExpr, *sqlparser.BinaryExpr, *sqlparser.BitAnd,
		*sqlparser.BitOr, *sqlparser.BitXor, sqlparser.BoolVal, *sqlparser.CaseExpr, *sqlparser.CastExpr, *sqlparser.CharExpr,
		*sqlparser.CollateExpr, *sqlparser.ColumnType, sqlparser.Columns, *sqlparser.CommonTableExpr, *sqlparser.ComparisonExpr,
		*sqlparser.ConvertExpr, *sqlparser.ConvertType, *sqlparser.ConvertUsingExpr, *sqlparser.Count, *sqlparser.CountStar,
		*sqlparser.CurTimeFuncExpr, *sqlparser.Default, *sqlparser.DerivedTable, *sqlparser.ExistsExpr, *sqlparser.Exprs,
		*sqlparser.ExtractFuncExpr, *sqlparser.ExtractValueExpr, *sqlparser.FirstOrLastValueExpr, *sqlparser.FrameClause,
		*sqlparser.FramePoint, *sqlparser.FromFirstLastClause, *sqlparser.GroupBy, *sqlparser.GroupConcatExpr,
		sqlparser.IdentifierCI, sqlparser.IdentifierCS, *sqlparser.IndexHint, sqlparser.IndexHints, *sqlparser.InsertExpr,
		*sqlparser.IntervalDateExpr, *sqlparser.IntervalFuncExpr, *sqlparser.IsExpr, *sqlparser.JoinCondition,
		*sqlparser.JoinTableExpr, *sqlparser.JtColumnDefinition, *sqlparser.JtOnResponse, *sqlparser.LagLeadExpr,
		*sqlparser.Limit, sqlparser.ListArg, *sqlparser.Literal, *sqlparser.LocateExpr, *sqlparser.MatchExpr, *sqlparser.Max,
		*sqlparser.MemberOfExpr, *sqlparser.Min, *sqlparser.NTHValueExpr, *sqlparser.NamedWindow, sqlparser.NamedWindows,
		*sqlparser.NotExpr, *sqlparser.NtileExpr, *sqlparser.NullTreatmentClause, *sqlparser.NullVal, sqlparser.OnDup,
		*sqlparser.OrExpr, *sqlparser.Order, sqlparser.OrderBy, *sqlparser.OverClause, *sqlparser.ParenTableExpr,
		*sqlparser.ParsedComments, sqlparser.Partitions, *sqlparser.RowAlias, *sqlparser.SelectExprs, *sqlparser.SelectInto,
		*sqlparser.Std, *sqlparser.StdDev, *sqlparser.StdPop, *sqlparser.StdSamp, *sqlparser.Subquery, *sqlparser.SubstrExpr,
		*sqlparser.Sum, sqlparser.TableExprs, sqlparser.TableNames, *sqlparser.TimestampDiffExpr, *sqlparser.TrimFuncExpr,
		*sqlparser.UnaryExpr, *sqlparser.UpdateExpr, sqlparser.UpdateExprs, *sqlparser.UpdateXMLExpr, sqlparser.ValTuple,
		sqlparser.Values, *sqlparser.ValuesFuncExpr, *sqlparser.ValuesStatement, *sqlparser.VarPop, *sqlparser.VarSamp,
		*sqlparser.Variable, *sqlparser.Variance, *sqlparser.WeightStringFuncExpr, *sqlparser.When, *sqlparser.Where,
		*sqlparser.WindowDefinition, sqlparser.WindowDefinitions, *sqlparser.WindowSpecification, *sqlparser.With,
		*sqlparser.XorExpr, *sqlparser.RegexpInstrExpr, *sqlparser.RegexpLikeExpr, *sqlparser.RegexpReplaceExpr,
		*sqlparser.RegexpSubstrExpr:
		return true
	}
	return json(n)
}

// json tells whether a node is one of MySQL's functions on JSON or on places.
func json(n sqlparser.SQLNode) bool {
	switch n.(type) {
	case *sqlparser.JSONArrayAgg, *sqlparser.JSONArrayExpr, *sqlparser.JSONAttributesExpr, *sqlparser.JSONContainsExpr,
		*sqlparser.JSONContainsPathExpr, *sqlparser.JSONExtractExpr, *sqlparser.JSONKeysExpr, *sqlparser.JSONObjectAgg,
		*sqlparser.JSONObjectExpr, *sqlparser.JSONObjectParam, *sqlparser.JSONOverlapsExpr, *sqlparser.JSONPrettyExpr,
		*sqlparser.JSONQuoteExpr, *sqlparser.JSONRemoveExpr, *sqlparser.JSONSchemaValidFuncExpr, *sqlparser.JSONSearchExpr,
		*sqlparser.JSONStorageFreeExpr, *sqlparser.JSONStorageSizeExpr, *sqlparser.JSONTableExpr, *sqlparser.JSONUnquoteExpr,
		*sqlparser.JSONValueExpr, *sqlparser.JSONValueMergeExpr, *sqlparser.JSONValueModifierExpr,
		*sqlparser.GeoJSONFromGeomExpr, *sqlparser.GeomFormatExpr, *sqlparser.GeomFromGeoJSONExpr, *sqlparser.GeomFromTextExpr,
		*sqlparser.GeomFromWKBExpr, *sqlparser.GeomPropertyFuncExpr, *sqlparser.PointExpr, *sqlparser.PointPropertyFuncExpr,
		*sqlparser.PolygonPropertyFuncExpr, *sqlparser.LineStringExpr, *sqlparser.LinestrPropertyFuncExpr:
		return true
	}
	return false
}
