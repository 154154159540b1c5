// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// What is known of a configuration is kept when more becomes known, and holds for its plugin's type only.
func TestConfCache(t *testing.T) {
	var k confCache
	conf := model.PluginConf{Type: "portmap", Raw: []byte(`{}`)}
	k.set(conf, func(c *cachedConf) { c.valid = true })
	k.set(conf, func(c *cachedConf) { c.typed, c.ipam = true, "static" })
	if c := k.get(conf); !c.valid || !c.typed || c.ipam != "static" {
		t.Errorf("known: %+v", c)
	}
	conf.Type = "bridge"
	if c := k.get(conf); c.valid || c.typed {
		t.Errorf("known of another type: %+v", c)
	}
}
