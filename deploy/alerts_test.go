// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alert is an alert of the chart's.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.UnmarshalStrict(read(t, "chart/files/alerts.yaml"), &rules); err != nil {
		t.Fatal(err)
	}
	if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 10 {
		t.Fatalf("%d groups", len(rules.Groups))
	}
	return rules.Groups[0].Rules
}

// TestAlerts: each alert links to its section of docs/tasks/alerts.md, which has no other; says what is wrong; and uses
// metrics that docs/reference/metrics.md has, which is compared with the code.
func TestAlerts(t *testing.T) {
	page, reference := string(read(t, "../docs/tasks/alerts.md")), string(read(t, "../docs/reference/metrics.md"))
	var sections, names []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(page, -1) {
		sections = append(sections, m[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		link := "https://github.com/weft-net/weft/blob/main/docs/tasks/alerts.md#" + strings.ToLower(a.Alert)
		if a.Annotations["runbook_url"] != link || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s: annotations %v", a.Alert, a.Annotations)
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" || a.For == "" {
			t.Errorf("%s: severity %q, for %q", a.Alert, s, a.For)
		}
		for _, metric := range regexp.MustCompile(`weft_\w+`).FindAllString(a.Expr, -1) {
			bare := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
			if !strings.Contains(reference, fmt.Sprintf("| `%s` |", metric)) && !strings.Contains(reference, fmt.Sprintf("| `%s` |", bare)) {
				t.Errorf("%s: there is no metric %s", a.Alert, metric)
			}
		}
		tests := string(read(t, "alerts/test.yaml"))
		if !strings.Contains(tests, "alertname: "+a.Alert+"\n") {
			t.Errorf("%s: deploy/alerts/test.yaml has no test", a.Alert)
		}
	}
	slices.Sort(sections)
	slices.Sort(names)
	if !slices.Equal(sections, names) {
		t.Errorf("alerts %q, sections of the page %q", names, sections)
	}
}
