package pgsql

import (
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
)

func sortedKeys(n node) []string { return slices.Sorted(maps.Keys(n)) }

// changes are the statements that change the server, its schema, its
// privileges or the session, and that can be undone by a statement of the same
// kind. The text says what each does.
var changes = map[string]string{
	"CreateStmt": "creates a table", "CreateTableAsStmt": "creates a table and fills it", "ViewStmt": "creates or replaces a view",
	"IndexStmt": "creates an index", "CreateSchemaStmt": "creates a schema", "CreateSeqStmt": "creates a sequence",
	"AlterSeqStmt": "alters a sequence", "CreateEnumStmt": "creates a type", "AlterEnumStmt": "alters a type",
	"CreateDomainStmt": "creates a domain", "AlterDomainStmt": "alters a domain", "CompositeTypeStmt": "creates a type",
	"CreateRangeStmt": "creates a type", "DefineStmt": "defines an aggregate, operator or type", "CommentStmt": "changes a comment",
	"RenameStmt": "renames an object", "AlterObjectSchemaStmt": "moves an object to another schema", "AlterOwnerStmt": "changes an owner",
	"AlterObjectDependsStmt": "changes a dependency", "GrantStmt": "changes privileges", "GrantRoleStmt": "changes who belongs to a role",
	"AlterDefaultPrivilegesStmt": "changes default privileges", "CreateRoleStmt": "creates a role", "AlterRoleStmt": "alters a role",
	"AlterRoleSetStmt": "alters a role's settings", "CreatedbStmt": "creates a database", "AlterDatabaseStmt": "alters a database",
	"AlterDatabaseSetStmt": "alters a database's settings", "AlterDatabaseRefreshCollStmt": "alters a database", "LockStmt": "locks a table",
	"VacuumStmt": "vacuums or analyses tables", "ClusterStmt": "rewrites a table", "ReindexStmt": "rebuilds indexes",
	"CheckPointStmt": "forces a checkpoint of the server", "RefreshMatViewStmt": "refreshes a materialised view",
	"ListenStmt": "listens to notifications", "UnlistenStmt": "stops listening to notifications", "NotifyStmt": "notifies other sessions",
	"DiscardStmt": "discards the session's state", "ConstraintsSetStmt": "changes when constraints are checked",
	"DeallocateStmt": "forgets a prepared statement", "DeclareCursorStmt": "opens a cursor", "FetchStmt": "moves a cursor",
	"ClosePortalStmt": "closes a cursor", "CreatePublicationStmt": "creates a publication", "AlterPublicationStmt": "alters a publication",
	"AlterSubscriptionStmt": "alters a subscription", "CreatePolicyStmt": "creates a row policy", "AlterPolicyStmt": "alters a row policy",
	"CreateTrigStmt": "creates a trigger", "CreateFunctionStmt": "creates or replaces a function", "AlterFunctionStmt": "alters a function",
	"RuleStmt": "creates a rule", "CreateStatsStmt": "creates statistics", "AlterStatsStmt": "alters statistics",
	"SecLabelStmt":          "changes a security label",
	"AlterTableMoveAllStmt": "moves tables to another tablespace", "AlterTypeStmt": "alters a type", "AlterCollationStmt": "alters a collation",
	"AlterOperatorStmt": "alters an operator", "AlterTSConfigurationStmt": "alters a text search configuration",
	"AlterTSDictionaryStmt": "alters a text search dictionary", "ReassignOwnedStmt": "gives away all that a role owns",
	"AlterExtensionStmt": "alters an extension", "AlterExtensionContentsStmt": "alters an extension",
	"CreateOpClassStmt": "creates an operator class", "CreateOpFamilyStmt": "creates an operator family",
	"AlterOpFamilyStmt": "alters an operator family", "CreateCastStmt": "creates a cast", "CreateConversionStmt": "creates a conversion",
	"CreateTransformStmt": "creates a transform", "AlterTableSpaceOptionsStmt": "alters a tablespace",
	"AlterEventTrigStmt": "alters an event trigger",
}

// privileges are those of them that change who may do what.
var privileges = set(`GrantStmt GrantRoleStmt AlterDefaultPrivilegesStmt CreateRoleStmt AlterRoleStmt AlterRoleSetStmt AlterOwnerStmt
	CreatePolicyStmt AlterPolicyStmt ReassignOwnedStmt SecLabelStmt`)

// losses are the statements that take something away for good.
var losses = map[string]string{
	"DropdbStmt": "drops database", "DropTableSpaceStmt": "drops tablespace", "DropOwnedStmt": "drops all that a role owns",
	"DropUserMappingStmt": "drops a user mapping", "DropSubscriptionStmt": "drops subscription",
}

// foreign are the statements that bring code or connections into the server.
var foreign = map[string]string{
	"AlterSystemStmt": "changes the server's own configuration, and with it which programs and libraries it runs",
	"LoadStmt":        "loads a library into the server", "CreateExtensionStmt": "installs an extension: its code runs in the server",
	"CreatePLangStmt": "installs a language: its code runs in the server", "CreateFdwStmt": "installs a foreign-data wrapper",
	"AlterFdwStmt": "alters a foreign-data wrapper", "CreateAmStmt": "installs an access method",
	"CreateForeignTableStmt": "creates a table that lies on another server", "ImportForeignSchemaStmt": "imports tables that lie on another server",
	"CreateForeignServerStmt": "connects the server to another", "AlterForeignServerStmt": "connects the server to another",
	"CreateUserMappingStmt": "keeps credentials for another server", "AlterUserMappingStmt": "changes credentials for another server",
	"CreateSubscriptionStmt": "connects the server to another", "CreateTableSpaceStmt": "creates a tablespace in the server's files",
	"CreateEventTrigStmt": "runs a function on every later change of the schema",
}

// definition judges the statements that define, alter or drop.
func (w *walk) definition(kind string, n node) bool {
	switch kind {
	case "DropStmt":
		w.drop(n)
		return true
	case "TruncateStmt":
		w.truncate(n)
		return true
	case "AlterTableStmt":
		w.alterTable(n)
		return true
	case "DropRoleStmt":
		w.dropRole(n)
		return true
	case "CreateFunctionStmt":
		w.createFunction(n)
		return true
	case "CreateTrigStmt", "DefineStmt", "CreateCastStmt":
		w.planted(kind, n)
	}
	if what, ok := losses[kind]; ok {
		w.found.Effect(sallyport.EffectDestroy)
		w.found.Lost("%s: it cannot be brought back", strings.TrimSpace(what+" "+firstOf(n, "dbname", "tablespacename", "subname")))
		w.found.Object(firstOf(n, "dbname", "tablespacename", "subname"))
		return true
	}
	if what, ok := foreign[kind]; ok {
		w.found.Effect(sallyport.EffectExecute)
		w.found.Add(sallyport.Critical, "%s", what)
		return true
	}
	what, ok := changes[kind]
	if !ok {
		return false
	}
	level := sallyport.High
	if privileges[kind] { // what others read or do meanwhile cannot be undone
		level = sallyport.Critical
		w.found.Effect(sallyport.EffectPrivileges)
	} else {
		w.found.Effect(sallyport.EffectWrite)
	}
	name := tableName(sub(n, "relation"))
	if kind == "CreateTableAsStmt" {
		name = tableName(sub(n, "into", "rel"))
	}
	if kind == "ViewStmt" {
		name = tableName(sub(n, "view"))
	}
	w.found.Part("", "table", name)
	w.found.Add(level, "%s", strings.TrimSpace(what+" "+name))
	if kind == "AlterDomainStmt" && (str(n, "subtype") == "X" || str(n, "def") == "DROP") {
		w.found.Lost("drops a constraint of a domain")
	}
	w.loosely(n)
	return true
}

func firstOf(n node, keys ...string) string {
	for _, k := range keys {
		if s := str(n, k); s != "" {
			return s
		}
	}
	return ""
}

// dropNames are the names in a DropStmt, as they are written.
func dropNames(n node) []string {
	var out []string
	list, _ := n["objects"].([]any)
	for _, o := range list {
		e, _ := o.(node)
		switch {
		case e["List"] != nil:
			out = append(out, strings.Join(names(sub(e, "List")["items"]), "."))
		case e["String"] != nil:
			out = append(out, str(sub(e, "String"), "sval"))
		case e["ObjectWithArgs"] != nil:
			out = append(out, strings.Join(names(sub(e, "ObjectWithArgs")["objname"]), "."))
		case e["TypeName"] != nil:
			out = append(out, strings.Join(names(sub(e, "TypeName")["names"]), "."))
		}
	}
	return out
}

var dropped = map[string]string{
	"OBJECT_TABLE": "table", "OBJECT_VIEW": "view", "OBJECT_MATVIEW": "materialised view", "OBJECT_INDEX": "index",
	"OBJECT_SEQUENCE": "sequence", "OBJECT_SCHEMA": "schema", "OBJECT_FUNCTION": "function", "OBJECT_PROCEDURE": "procedure",
	"OBJECT_TYPE": "type", "OBJECT_DOMAIN": "domain", "OBJECT_TRIGGER": "trigger", "OBJECT_EXTENSION": "extension",
	"OBJECT_FOREIGN_TABLE": "foreign table", "OBJECT_POLICY": "row policy", "OBJECT_RULE": "rule",
}

func (w *walk) drop(n node) {
	what := dropped[str(n, "removeType")]
	if what == "" {
		what = strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(str(n, "removeType"), "OBJECT_"), "_", " "))
	}
	consequence := "it cannot be brought back"
	switch what {
	case "table", "materialised view":
		consequence = "its rows cannot be brought back"
	case "schema", "extension":
		consequence = "nothing in it can be brought back"
	}
	list := dropNames(n)
	w.found.Effect(sallyport.EffectDestroy)
	for _, name := range list {
		w.found.Object(name)
		w.found.Part("", what, name)
		w.found.Lost("drops %s %s: %s", what, name, consequence)
	}
	if len(list) == 0 {
		w.found.Lost("drops %s: %s", what, consequence)
	}
	if str(n, "behavior") == "DROP_CASCADE" {
		w.found.Lost("drops all that depends on it, too")
	}
}

func (w *walk) truncate(n node) {
	relations, _ := n["relations"].([]any)
	w.found.Effect(sallyport.EffectDelete)
	for _, r := range relations {
		e, _ := r.(node)
		w.found.Lost("empties table %s: its rows cannot be brought back", w.written(sub(e, "RangeVar")))
	}
	if str(n, "behavior") == "DROP_CASCADE" {
		w.found.Lost("empties every table that refers to it, too")
	}
}

func (w *walk) dropRole(n node) {
	w.found.Effect(sallyport.EffectPrivileges)
	w.found.Effect(sallyport.EffectDestroy)
	w.found.Lost("drops a role: it cannot be brought back")
	roles, _ := n["roles"].([]any)
	for _, r := range roles {
		e, _ := r.(node)
		name := str(sub(e, "RoleSpec"), "rolename")
		w.found.Object(name)
	}
}

func (w *walk) alterTable(n node) {
	name := w.written(sub(n, "relation"))
	w.found.Effect(sallyport.EffectWrite)
	w.found.Add(sallyport.High, "alters %s", name)
	cmds, _ := n["cmds"].([]any)
	for _, c := range cmds {
		e, _ := c.(node)
		cmd := sub(e, "AlterTableCmd")
		part := str(cmd, "name")
		switch kind := str(cmd, "subtype"); {
		case kind == "AT_DropColumn":
			w.found.Effect(sallyport.EffectDestroy)
			w.found.Lost("drops column %s of %s: its values cannot be brought back", part, name)
		case kind == "AT_AlterColumnType":
			w.found.Lost("converts column %s of %s: what the new type cannot hold is lost", part, name)
		case kind == "AT_SetUnLogged":
			w.found.Add(sallyport.Critical, "no longer writes %s to the log: a crash empties it", name)
		case kind == "AT_DropNotNull":
		case strings.HasPrefix(kind, "AT_Drop"):
			w.found.Lost("drops %s of %s: it cannot be brought back by the same hand", part, name)
		case kind == "AT_ChangeOwner", strings.HasSuffix(kind, "RowSecurity"):
			w.found.Effect(sallyport.EffectPrivileges)
			w.found.Add(sallyport.Critical, "changes who may do what with %s", name)
		case strings.Contains(kind, "Disable"):
			w.found.Add(sallyport.High, "switches off a trigger, rule or row policy of %s", name)
		}
	}
	w.loosely(n)
}
