package litesql

import (
	"strings"

	"sallyport.dev/sallyport"
)

// functions are SQLite's own functions that only compute.
var functions = set(`-> ->> abs avg bm25 ceil ceiling changes char coalesce concat concat_ws count cume_dist current_date current_time
	current_timestamp date datetime dense_rank acos acosh asin asinh atan atan2 atanh cos cosh degrees exp
	first_value floor format glob group_concat hex highlight if ifnull iif instr julianday lag last_insert_rowid last_value
	lead length like likelihood likely ln log log10 log2 lower ltrim match matchinfo max median min mod nth_value ntile nullif
	octet_length percent_rank percentile percentile_cont percentile_disc pi pow power printf quote radians random randomblob
	rank regexp replace round row_number rtrim sign sin sinh snippet soundex sqlite_compileoption_get
	sqlite_compileoption_used sqlite_source_id sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh
	time timediff total total_changes trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob offsets
	json jsonb json_array jsonb_array json_array_length json_error_position json_extract jsonb_extract json_insert jsonb_insert
	json_object jsonb_object json_patch jsonb_patch json_pretty json_quote json_remove jsonb_remove json_replace jsonb_replace
	json_set jsonb_set json_type json_valid json_group_array jsonb_group_array json_group_object jsonb_group_object
	json_each json_tree geopoly_area rtreecheck`)

// looks are the pragmas that only show something, whatever argument they have.
var looks = set(`collation_list compile_options database_list foreign_key_check foreign_key_list function_list index_info
	index_list index_xinfo integrity_check module_list pragma_list quick_check table_info table_list table_xinfo data_version
	freelist_count page_count stats`)

// settings are the pragmas that show something without an argument, and change
// it with one.
var settings = set(`analysis_limit application_id auto_vacuum automatic_index busy_timeout cache_size cache_spill cell_size_check
	checkpoint_fullfsync default_cache_size defer_foreign_keys encoding foreign_keys fullfsync hard_heap_limit
	ignore_check_constraints journal_mode journal_size_limit legacy_alter_table locking_mode max_page_count mmap_size page_size
	query_only read_uncommitted recursive_triggers reverse_unordered_selects schema_version secure_delete soft_heap_limit
	synchronous temp_store threads trusted_schema user_version wal_autocheckpoint writable_schema`)

// writing are the pragmas that make the database write.
var writing = set(`wal_checkpoint optimize incremental_vacuum shrink_memory`)

func (w *walk) pragma(name, value string) {
	switch {
	case looks[name]:
	case settings[name] && value == "":
	case name == "writable_schema" || name == "schema_version" || name == "ignore_check_constraints" || name == "trusted_schema":
		w.found.Add(sallyport.Critical, "sets %s, which can destroy the database", name)
	case settings[name]:
		w.found.Add(sallyport.High, "sets %s to %s", name, value)
	case writing[name]:
		w.found.Add(sallyport.High, "makes the database write: %s", name)
	default:
		w.found.Add(sallyport.Critical, "uses pragma %s, which the analyser does not know", name)
	}
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
