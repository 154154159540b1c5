// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestEveryKeyOfEveryPlugin checks that each key of each plugin is known, and that a typo in it is a warning that
// suggests a known key.
func TestEveryKeyOfEveryPlugin(t *testing.T) {
	for typ, planner := range plugin.Builtin() {
		for _, key := range planner.Keys() {
			if strings.ContainsAny(key, ".[*") || len(key) < 4 {
				continue
			}
			for _, name := range []string{key, key[:1] + key[2:]} {
				conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge"},{"type":%q,%q:null}]}`, typ,
					name)
				var found *cni.Warning
				for _, w := range cni.Examine([]byte(conf), plugin.Builtin(), builtin.Readers(os.ReadFile)).Warnings {
					if w.Field == name && strings.Contains(w.Msg, "unknown key") {
						found = &w
					}
				}
				switch known := slices.Contains(planner.Keys(), name); {
				case known && found != nil:
					t.Errorf("%s: key %s: %s", typ, name, found)
				case !known && found == nil:
					t.Errorf("%s: unknown key %s: no warning", typ, name)
				case !known && !strings.Contains(found.Hint, "did you mean "):
					t.Errorf("%s: key %s: the hint suggests no key: %s", typ, name, found)
				}
			}
		}
	}
}

// TestValidateKnowsThePlugins checks that a typo in an option of each plugin is a warning, and an error with --strict.
func TestValidateKnowsThePlugins(t *testing.T) {
	for typ, tt := range map[string]struct{ conf, want string }{
		"bridge": {`"ipMasqBackends":"nftables"`, `unknown key "ipMasqBackends" (did you mean ipMasqBackend?)`},
		"ptp": {
			`"ipmask":true,"ipam":{"type":"static","addresses":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}`,
			`unknown key "ipmask" (did you mean ipMasq?)`,
		},
		"macvlan": {`"mastr":"eth0"`, `unknown key "mastr" (did you mean master?)`},
		"ipvlan":  {`"mastr":"eth0"`, `unknown key "mastr" (did you mean master?)`},
		"vlan": {
			`"master":"eth0","vlanID":5,"vlanld":5,"ipam":{"type":"host-local","subnet":"10.0.0.0/24"}`,
			`unknown key "vlanld" (did you mean vlanId?)`,
		},
		"host-device": {`"device":"eth1","kernelPaths":"/x"`, `unknown key "kernelPaths" (did you mean kernelpath?)`},
		"dummy": {
			`"ipma":{"type":"static"},"ipam":{"type":"host-local","subnet":"10.0.0.0/24"}`,
			`unknown key "ipma" (did you mean ipam?)`,
		},
		"tap":       {`"multiQueu":true`, `unknown key "multiQueu" (did you mean multiQueue?)`},
		"vrf":       {`"vrfname":"red","tabel":7`, `unknown key "tabel" (did you mean table?)`},
		"portmap":   {`"snatt":true,"capabilities":{"portMappings":true}`, `unknown key "snatt" (did you mean snat?)`},
		"bandwidth": {`"ingressRates":5`, `unknown key "ingressRates" (did you mean ingressRate?)`},
		"tuning":    {`"txQLenn":5`, `unknown key "txQLenn" (did you mean txQLen?)`},
		"firewall":  {`"ingressPolicyy":"open"`, `unknown key "ingressPolicyy" (did you mean ingressPolicy?)`},
		"sbr":       {`"tabel":7`, `unknown key "tabel" (did you mean table?)`},
	} {
		if plugin.Builtin()[typ] == nil {
			t.Logf("%s is not built in", typ)
			continue
		}
		conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":%q,%s}]}`, typ, tt.conf)
		if !json.Valid([]byte(conf)) {
			t.Fatalf("%s: %s is no JSON", typ, conf)
		}
		for strict, code := range map[bool]int{false: 0, true: 1} {
			args := []string{"cni", "validate", "-", fmt.Sprintf("--strict=%v", strict)}
			var stdout, stderr bytes.Buffer
			got := Run(t.Context(), Env{
				Args: args, Stdin: strings.NewReader(conf), Stdout: &stdout, Stderr: &stderr,
				Getenv: func(string) string { return "" },
			})
			if got != code || !strings.Contains(stdout.String(), tt.want) {
				t.Errorf("%s, strict %v: exit %d, want %d and %q\n%s%s", typ, strict, got, code, tt.want, &stdout, &stderr)
			}
		}
	}
}

// TestTwoInterfacePlugins checks the warning about a list with two plugins that create the container's interface: the
// second one's ADD would fail.
func TestTwoInterfacePlugins(t *testing.T) {
	for second, warned := range map[string]bool{
		`{"type":"ptp"}`: true, `{"type":"macvlan"}`: true, `{"type":"host-device"}`: true,
		`{"type":"ipvlan","ipam":{"type":"static"}}`: true,
		`{"type":"ipvlan"}`:                          false, `{"type":"tuning"}`: false,
	} {
		conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge"},%s]}`, second)
		found := slices.ContainsFunc(cni.Examine([]byte(conf), plugin.Builtin(), builtin.Readers(os.ReadFile)).Warnings,
			func(w cni.Warning) bool {
				return strings.Contains(w.Msg, "a second plugin that makes the container's interface")
			})
		if found != warned {
			t.Errorf("bridge and %s: warned %v", second, found)
		}
	}
}
