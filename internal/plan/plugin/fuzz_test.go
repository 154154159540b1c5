// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// FuzzPlan plans arbitrary configurations: an error has a code, and planned interface names are valid.
func FuzzPlan(f *testing.F) {
	seeds := goldens()
	maps.Copy(seeds, bridgeGoldens())
	for _, in := range seeds {
		f.Add(string(in.Conf.Raw), "MAC", "02:00:00:00:00:01")
	}
	f.Add(`{"type":"bridge","vlanTrunk":{"id":1},"dns":[],"ipam":"x"}`, "", "")
	f.Add(`{"type":"ptp","dns":{"nameservers":null},"ipam":{"type":"x"},"ipMasqBackend":null}`, "IgnoreUnknown", "1")
	f.Fuzz(func(t *testing.T, conf, key, value string) {
		for kind, p := range Builtin() {
			in := Input{
				Conf: model.PluginConf{Type: kind, Raw: json.RawMessage(conf)}, Request: request(), IPAM: dual(),
				Answers: programs(nil),
			}
			in.Request.Args = [][2]string{{key, value}}
			_, observed := p.Observe(in)
			step, planned := p.Plan(in)
			for _, err := range []error{Validate(p, in.Conf), observed, planned} {
				var fault *model.Error
				if err != nil && !errors.As(err, &fault) {
					t.Fatalf("%s: error without a code: %v", kind, err)
				}
			}
			if planned != nil {
				continue
			}
			for _, space := range []state.Space{step.Fragment.Host, step.Fragment.Pod} {
				for _, l := range space.Links {
					if l.Name == "" || len(l.Name) > 15 || len(l.Alias) > 255 {
						t.Fatalf("%s: link %v", kind, l)
					}
				}
			}
		}
	})
}
