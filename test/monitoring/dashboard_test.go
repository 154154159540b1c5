// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks the chart's dashboard against Grafana's own schema. It is a module of its own, so that nothing
// else depends on Grafana's types.
package monitoring

import (
	"bytes"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// TestDashboard: Grafana's types have each field of the dashboard, its panels and their options, with valid values, and
// refuse fields that they do not have.
func TestDashboard(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile("../../deploy/chart/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); said(err) {
		t.Fatal(err)
	}
	if err := d.Validate(); said(err) {
		t.Error(err)
	}
	if len(d.Panels) < 10 {
		t.Errorf("%d panels", len(d.Panels))
	}
	for _, field := range []string{`"schemaVersion"`, `"fieldConfig"`, `"gridPos"`} {
		var d dashboard.Dashboard
		if err := d.UnmarshalJSONStrict(bytes.Replace(text, []byte(field), []byte(`"unknown"`), 1)); !said(err) {
			t.Errorf("a dashboard without one %s is accepted", field)
		}
	}
}

// said reports whether there is an error. Grafana's decoder returns a list of errors, which may be empty.
func said(err error) bool { return err != nil && err.Error() != "" }
