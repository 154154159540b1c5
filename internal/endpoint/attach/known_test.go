// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// What is asked for again and again stays known however many others come, and what nobody asks for goes.
func TestKnownIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	var k known
	object := func(n int) model.PluginConf {
		return model.PluginConf{Type: "portmap", Raw: fmt.Appendf(nil, "%d", n)}
	}
	used, unused := object(-1), object(-2)
	for _, conf := range []model.PluginConf{used, unused} {
		k.set(conf, func(c *knownConf) { c.valid = true })
	}
	for n := range 5 * mostKnown {
		k.set(object(n), func(c *knownConf) { c.valid = true })
		if !k.get(used).valid {
			t.Fatalf("what is used with each call is unknown after %d others", n)
		}
		if len(k.confs)+len(k.old) > 2*mostKnown {
			t.Fatalf("%d objects are known", len(k.confs)+len(k.old))
		}
	}
	if k.get(unused).valid {
		t.Error("what nobody has asked for is known still")
	}
}
