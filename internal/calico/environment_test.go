// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store/dir"
)

// TestEnvironment: settings in the environment of Felix' DaemonSet that change verdicts are named unless
// FelixConfigurations have the same.
func TestEnvironment(t *testing.T) {
	const notSet = "FELIX_DEFAULTENDPOINTTOHOSTACTION is not set, so that Calico denies what pods send to their node; " +
		"write spec.defaultEndpointToHostAction, Drop or Accept, into FelixConfiguration default"
	lost := func(variable, value, field string) string {
		return variable + ` "` + value + `" is not what FelixConfigurations have, which is what weft reads; write it as spec.` + field +
			" of FelixConfiguration default, and of others that set the field"
	}
	const etcd = "policies in its etcd are not read; write them to manifests by weft ipam import --from calico --calico-config FILE " +
		"--calico-policies FILE, apply these, and then: kubectl -n kube-system annotate daemonset calico-node " +
		"weft.dev/etcd-policies=imported"
	accept := "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT"
	configuration := func(name, spec string) string {
		return "\n---\napiVersion: crd.projectcalico.org/v1\nkind: FelixConfiguration\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
	}
	for _, c := range []struct {
		env, more string
		imported  bool // from the etcd
		want      []string
	}{
		{env: accept + " ETCD_ENDPOINTS=", want: []string{etcd}},
		{env: accept + " ETCD_ENDPOINTS=", imported: true},
		{env: accept + " DATASTORE_TYPE=etcdv3", want: []string{etcd}},
		{env: accept + " DATASTORE_TYPE=", want: []string{etcd}},
		{env: accept + " DATASTORE_TYPE=kubernetes ETCD_ENDPOINTS="},
		{env: accept},
		{env: "FELIX_DefaultEndpointToHostAction=Return FELIX_LOGSEVERITYSCREEN=info FELIX_WORKLOADSOURCESPOOFING=Disabled IP=autodetect"},
		{env: "IP=autodetect", want: []string{notSet}},
		{env: "IP=autodetect", more: configuration("default", "defaultEndpointToHostAction: Accept")},
		{env: "IP=autodetect", more: configuration("node.n1", "defaultEndpointToHostAction: Accept"), want: []string{notSet}},
		{
			env:  "FELIX_DEFAULTENDPOINTTOHOSTACTION=DROP",
			want: []string{lost("FELIX_DEFAULTENDPOINTTOHOSTACTION", "DROP", "defaultEndpointToHostAction")},
		},
		{env: "FELIX_DEFAULTENDPOINTTOHOSTACTION=DROP", more: configuration("default", "defaultEndpointToHostAction: Drop")},
		{
			env: accept, more: configuration("node.n1", "defaultEndpointToHostAction: Drop"),
			want: []string{lost("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT", "defaultEndpointToHostAction")},
		},
		{
			env:  accept + " FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:22,udp:68 FELIX_FAILSAFEOUTBOUNDHOSTPORTS=none",
			more: configuration("default", "failsafeInboundHostPorts: [{protocol: udp, port: 68}, {port: 22}], failsafeOutboundHostPorts: []"),
		},
		{
			env:  accept + " FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:192.0.2.0/24:22,tcp:[2001:db8::1]:22,443",
			more: configuration("default", "failsafeInboundHostPorts: [{port: 22, net: 192.0.2.0/24}, {port: 22, net: '2001:db8::1/128'}, {port: 443}]"),
		},
		{
			env: accept + " FELIX_FAILSAFEINBOUNDHOSTPORTS=22", more: configuration("default", "failsafeInboundHostPorts: []"),
			want: []string{lost("FELIX_FAILSAFEINBOUNDHOSTPORTS", "22", "failsafeInboundHostPorts")},
		},
		{
			env:  accept + " FELIX_FAILSAFEOUTBOUNDHOSTPORTS=udp:53",
			want: []string{lost("FELIX_FAILSAFEOUTBOUNDHOSTPORTS", "udp:53", "failsafeOutboundHostPorts")},
		},
		{
			env:  accept + " FELIX_FAILSAFEINBOUNDHOSTPORTS=tcp:ssh",
			want: []string{`FELIX_FAILSAFEINBOUNDHOSTPORTS "tcp:ssh": "tcp:ssh" is no port`},
		},
		{
			env: accept + " FELIX_IPTABLESFILTERDENYACTION=REJECT FELIX_INTERFACEPREFIX=eni",
			want: []string{
				`FELIX_INTERFACEPREFIX "eni" has no effect; see weft's reference of Calico's policies, and remove it`,
				`FELIX_IPTABLESFILTERDENYACTION "REJECT" has no effect; see weft's reference of Calico's policies, and remove it`,
			},
		},
		{
			env: accept + " FELIX_FAILSAFEINBOUNDHOSTPORTS=",
			want: []string{"the value of FELIX_FAILSAFEINBOUNDHOSTPORTS is in another object; " +
				"write it into FelixConfiguration default, and remove the variable"},
		},
	} {
		var text strings.Builder
		annotations := ""
		if c.imported {
			annotations = ", annotations: {weft.dev/etcd-policies: imported}"
		}
		text.WriteString("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: calico-node, namespace: kube-system" + annotations + "}\n" +
			"spec: {template: {spec: {containers: [{name: other, env: [{name: FELIX_IPTABLESFILTERDENYACTION, value: REJECT}]},\n" +
			"  {name: calico-node, env: [")
		for e := range strings.FieldsSeq(c.env) {
			name, value, _ := strings.Cut(e, "=")
			if value == "" {
				text.WriteString("{name: " + name + ", valueFrom: {configMapKeyRef: {name: x, key: y}}}, ")
				continue
			}
			text.WriteString("{name: " + name + ", value: '" + value + "'}, ")
		}
		text.WriteString("]}]}}}" + c.more)
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "all.yaml"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := dir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := calico.Unenforced(t.Context(), s.Objects())
		var want []string
		for _, w := range c.want {
			want = append(want, "DaemonSet kube-system/calico-node ("+w+")")
		}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s %s: %v\n%s", c.env, c.more, err, d)
		}
	}
}
