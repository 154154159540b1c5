// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// A configuration in use stays cached however many others are added, and an unused one is evicted.
func TestConfCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	var k confCache
	object := func(n int) model.PluginConf {
		return model.PluginConf{Type: "portmap", Raw: fmt.Appendf(nil, "%d", n)}
	}
	used, unused := object(-1), object(-2)
	for _, conf := range []model.PluginConf{used, unused} {
		k.set(conf, func(c *cachedConf) { c.valid = true })
	}
	for n := range 5 * confCacheSize {
		k.set(object(n), func(c *cachedConf) { c.valid = true })
		if !k.get(used).valid {
			t.Fatalf("what is used with each call is unknown after %d others", n)
		}
		if len(k.confs)+len(k.old) > 2*confCacheSize {
			t.Fatalf("%d objects are known", len(k.confs)+len(k.old))
		}
	}
	if k.get(unused).valid {
		t.Error("what nobody has asked for is known still")
	}
}
