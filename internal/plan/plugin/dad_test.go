// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// The probe for duplicates is refused where it would find none, and out of its range.
func TestDADTimeoutRefused(t *testing.T) {
	planners := plugin.InAgent()
	const ipam = `"ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}`
	for _, one := range []struct{ plugin, conf, says string }{
		{"bridge", `"dadTimeout": 200, ` + ipam, ""},
		{"macvlan", `"master": "eth0", "dadTimeout": 10000, ` + ipam, ""},
		{"macvlan", `"master": "eth0", "dadTimeout": 10001, ` + ipam, "dadTimeout 10001 is not between 0 and 10000"},
		{"bridge", `"dadTimeout": -1, ` + ipam, "dadTimeout -1 is not between 0 and 10000"},
		{"bridge", `"dadTimeout": 200`, "the interface gets no addresses that could be probed"},
		{"ptp", `"dadTimeout": 200, ` + ipam, "plugin ptp: dadTimeout 200: the plugin cannot probe"},
		{"ptp", `"dadTimeout": 0, ` + ipam, ""},
		{"ipvlan", `"master": "eth0", "dadTimeout": 200, ` + ipam, "plugin ipvlan: dadTimeout 200: the plugin cannot probe"},
		{"tuning", `"dadTimeout": 200`, "plugin tuning: dadTimeout 200: the plugin cannot probe"},
	} {
		err := plugin.Validate(planners[one.plugin], model.PluginConf{
			Type: one.plugin, Raw: []byte(`{"type": "` + one.plugin + `", ` + one.conf + `}`),
		})
		switch {
		case one.says == "" && err != nil:
			t.Errorf("%s %s: %v", one.plugin, one.conf, err)
		case one.says != "" && (err == nil || !strings.Contains(err.Error(), one.says)):
			t.Errorf("%s %s: %v, want %q", one.plugin, one.conf, err, one.says)
		}
	}
}
