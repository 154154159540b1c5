// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/deploy/chart"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/release"
)

// TestMonitoring: an API server with the kinds of the Prometheus operator knows each field of the
// chart's objects for it, and weft is installed with them. The operator's kinds are in the directory WEFT_OPERATOR_KINDS (make test-alerts).
func TestMonitoring(t *testing.T) {
	dir := os.Getenv("WEFT_OPERATOR_KINDS")
	if dir == "" {
		nettest.SkipMissing(t, "the kinds of the Prometheus operator are not here: make test-alerts")
	}
	w := newWorld(t)
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		text, err := os.ReadFile(filepath.Join(dir, "monitoring.coreos.com_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		w.DefineKind(text)
	}
	monitoring := values{"monitoring": values{"listen": "all", "podMonitor": true, "rules": true, "dashboard": true}}
	manifests, err := chart.Render(monitoring, chart.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	for _, m := range manifests {
		for doc := range strings.SplitSeq(m.Text, "---\n") {
			var o struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind != "PodMonitor" && o.Kind != "PrometheusRule" {
				continue
			}
			body, err := yaml.YAMLToJSON([]byte(doc))
			if err != nil {
				t.Fatal(err)
			}
			created++
			w.Do(http.MethodPost, "/apis/monitoring.coreos.com/v1/namespaces/kube-system/"+strings.ToLower(o.Kind)+
				"s?fieldValidation=Strict&dryRun=All", json.RawMessage(body))
		}
	}
	if created != 3 {
		t.Errorf("%d objects for the operator", created)
	}
	if _, err := w.open().Apply(t.Context(), release.Options{Install: true, Values: monitoring}); err != nil {
		t.Fatal(err)
	}
	if got := w.names("/apis/monitoring.coreos.com/v1/podmonitors"); !slices.Equal(got, []string{"weft-agent", "weft-controller"}) {
		t.Errorf("pod monitors of an installation: %q", got)
	}
}
