package idempotency_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/idempotency"
)

// The fragment is JSON, its references are valid, and it has exactly the codes of this package.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal([]byte(idempotency.OpenAPI), &doc); err != nil {
		t.Fatal(err)
	}
	at := func(path string) any {
		var v any = doc
		for name := range strings.SplitSeq(path, "/") {
			m, _ := v.(map[string]any)
			v = m[name]
		}
		return v
	}
	refs := 0
	var follow func(v any)
	follow = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if refs++; at(strings.TrimPrefix(ref, "#/")) == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, inner := range v {
				follow(inner)
			}
		case []any:
			for _, inner := range v {
				follow(inner)
			}
		}
	}
	follow(doc)
	if refs == 0 {
		t.Error("no references were found")
	}
	var have []string
	for _, code := range at("components/schemas/IdempotencyProblem/properties/code/enum").([]any) {
		have = append(have, code.(string))
	}
	var want []string
	for _, code := range slices.Sorted(maps.Keys(idempotency.Codes())) {
		want = append(want, string(code))
	}
	if !slices.Equal(have, want) {
		t.Errorf("codes are %v, want %v", have, want)
	}
}
