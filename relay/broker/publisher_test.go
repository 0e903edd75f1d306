package broker_test

import (
	"reflect"
	"testing"

	"github.com/postroom/postroom/relay/broker"
)

// Only a type that embeds PublishOnly is a Publisher, so a later version can add a method.
func TestAPublisherEmbedsPublishOnly(t *testing.T) {
	t.Parallel()
	sealed := false
	for m := range reflect.TypeFor[broker.Publisher]().Methods() {
		sealed = sealed || !m.IsExported()
	}
	if !sealed {
		t.Error("a type without PublishOnly can be a Publisher: the next method would break it")
	}
	for name, missing := range map[string]bool{"Check": true, "Run": true, "Abilities": false, "Compare": false, "RunAtomic": false} {
		if _, has := reflect.TypeFor[broker.PublishOnly]().MethodByName(name); has == missing {
			t.Errorf("PublishOnly has %s: %t", name, has)
		}
	}
}
