package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// checkRights examines the rights of the role that the doctor uses. If the role cannot write
// anything, checkRights assumes that it is the role of a person who only reads.
func checkRights(ctx context.Context, e *examination) error {
	type right struct {
		Part, Relation, Privilege string
		Has                       bool
	}
	needs, err := query[right](ctx, e, e.d.sql.RoleRights)
	if err != nil {
		return err
	}
	parts, lacking := []string{"relay", "inbox", "idempotency", "sagas", "webhooks", "operator"}, make(map[string][]string)
	for _, r := range needs {
		if !r.Has {
			lacking[r.Part] = append(lacking[r.Part], fmt.Sprintf("%s ON %s.%s", r.Privilege, e.d.name, r.Relation))
		}
	}
	isWhole := func(part string) bool { return len(lacking[part]) == 0 }
	whole := slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return !isWhole(part) })
	// meant has each part for which the role seems to be meant: it lacks some rights of the part,
	// but it can write a table of the part. A table does not count if it also belongs to a part
	// whose rights the role has completely, because that part explains the right to write.
	meant := slices.DeleteFunc(parts, func(part string) bool {
		return isWhole(part) || !slices.ContainsFunc(needs, func(r right) bool {
			shared := slices.ContainsFunc(needs, func(o right) bool { return o.Relation == r.Relation && isWhole(o.Part) })
			writes := !strings.HasPrefix(r.Privilege, "SELECT") && r.Privilege != "EXECUTE"
			return r.Part == part && r.Has && writes && !shared
		})
	})
	switch {
	case len(meant) > 0: // report only the part for which the role lacks the fewest rights
		part := slices.MinFunc(meant, func(a, b string) int { return len(lacking[a]) - len(lacking[b]) })
		e.fault(part, fmt.Sprintf("as the owner of the tables: SELECT %s.grant_%s('…'), with this role", e.d.name, part),
			"this role has some of the rights of %s, and lacks %s", roleNames[part], firstOf(lacking[part]))
	case len(whole) == 0:
		e.skip("", "run it as the role of the relay, of an inbox, of a service or of an operator", "this role cannot write to any of the tables: the rights of roles that can were not checked")
	case len(whole) < len(roleNames):
		names := make([]string, len(whole))
		for i, part := range whole {
			names[i] = roleNames[part]
		}
		e.ok("", "this role has the rights of %s", strings.Join(names, " and of "))
	}
	return nil
}

// roleNames has the parts of Postroom that may have their own role, each with its name in a text.
var roleNames = map[string]string{
	"relay": "the relay", "inbox": "the inbox", "idempotency": "a guard of requests", "sagas": "a saga", "webhooks": "a sender of webhooks",
	"operator": "an operator",
}

// checkPublic looks for rights of PUBLIC on the tables, functions and types.
func checkPublic(ctx context.Context, e *examination) error {
	type right struct {
		Privilege, Relation string
		Owner               bool // a function that runs with the rights of its owner, or as a trigger
	}
	found, err := query[right](ctx, e, e.d.sql.PublicRights)
	for _, r := range found {
		remedy := fmt.Sprintf("REVOKE %s ON %s.%s FROM PUBLIC", r.Privilege, e.d.name, r.Relation)
		if r.Relation == "the schema" {
			remedy = fmt.Sprintf("REVOKE %s ON SCHEMA %s FROM PUBLIC", r.Privilege, e.d.name)
		}
		switch r.Privilege {
		case "SELECT":
			e.warn(r.Relation, remedy, "every role of this server may read %s, and so the content of events", r.Relation)
			continue
		case "USAGE":
			remedy = fmt.Sprintf("REVOKE USAGE ON TYPE %s.%s FROM PUBLIC", e.d.name, r.Relation)
			e.warn(r.Relation, remedy, "every role of this server may create an operator for the type %s, which statements of other roles could use", r.Relation)
			continue
		case "EXECUTE":
			remedy = fmt.Sprintf("REVOKE EXECUTE ON FUNCTION %s.%s FROM PUBLIC", e.d.name, r.Relation)
			if !r.Owner {
				e.warn(r.Relation, remedy, "every role of this server may execute the function %s", r.Relation)
				continue
			}
		}
		e.fault(r.Relation, remedy, "every role of this server has %s on %s: it can change events, or records of what was published or decided", r.Privilege, r.Relation)
	}
	return err
}

func checkProducers(ctx context.Context, e *examination) error {
	if len(e.d.cfg.ProducerRoles) == 0 {
		e.skip("", "name the roles that write events: --producer-role", "not checked: no role of a producer was named")
	}
	for _, role := range e.d.cfg.ProducerRoles {
		if err := checkProducer(ctx, e, role); err != nil {
			return err
		}
	}
	return nil
}

func checkProducer(ctx context.Context, e *examination, role string) error {
	type right struct {
		Owner               bool
		Name                string
		Wanted, Writes, Has bool
	}
	all, err := query[right](ctx, e, e.d.sql.ProducerRights, role)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		e.fault(role, "create it, or correct the name", "there is no role %s", role)
		return nil
	}
	if all[0].Owner {
		e.fault(role, fmt.Sprintf("write events as another role, with the rights of SELECT %s.grant_producer('…')", e.d.name),
			"the role is a superuser, or owns the tables: nothing stops it from changing events or their order")
		return nil
	}
	var lacks, writes, reads []string
	for _, r := range all {
		switch {
		case r.Wanted && !r.Has:
			lacks = append(lacks, r.Name)
		case !r.Wanted && r.Has && r.Writes:
			writes = append(writes, r.Name)
		case !r.Wanted && r.Has:
			reads = append(reads, r.Name)
		}
	}
	if len(lacks) > 0 {
		e.fault(role, fmt.Sprintf("SELECT %s.grant_producer('%s')", e.d.name, role), "it cannot write events: it lacks %s", firstOf(lacks))
	}
	if len(writes) > 0 {
		e.fault(role, fmt.Sprintf("REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM %s; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %[1]s FROM %[2]s; SELECT %[1]s.grant_producer('%[2]s')", e.d.name, role),
			"it can change events of the log, or their order: it has %s", firstOf(writes))
	}
	if len(reads) > 0 {
		e.warn(role, fmt.Sprintf("REVOKE SELECT ON %s.outbox FROM %s; SELECT %s.grant_producer('%s')", e.d.name, role, e.d.name, role),
			"it can read the events of other producers: it has %s", firstOf(reads))
	}
	if len(lacks)+len(writes)+len(reads) == 0 {
		e.ok(role, "it can only write events")
	}
	return nil
}
