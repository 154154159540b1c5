// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestResultsAreThoseOfTheReferencePlugins lets the reference plugins work in throw-away namespaces and compares what
// they print with what weft plans for the same configuration. Names and MACs that are chosen are compared by form only.
func TestResultsAreThoseOfTheReferencePlugins(t *testing.T) {
	nettest.EndToEnd(t)
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: results are not compared with the reference plugins")
	}
	const v4 = `"ipam":{"type":"host-local","subnet":"10.1.0.0/24","routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.0.1"}],"dataDir":"DIR"}`
	const both = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00:1::/64"}]],"dataDir":"DIR"}`
	const fixed = `"ipam":{"type":"static","addresses":[{"address":"10.1.0.7/24"}],"dns":{"nameservers":["10.0.0.1"]}}`
	confs := map[string]string{
		"loopback":         `"type":"loopback"`,
		"ptp":              `"type":"ptp",` + v4,
		"ptp-dual":         `"type":"ptp","mtu":1400,"dns":{"domain":"x"},` + both,
		"bridge-l2":        `"type":"bridge","bridge":"br-l2"`,
		"bridge-plain":     `"type":"bridge","bridge":"br-p",` + v4,
		"bridge-gateway":   `"type":"bridge","bridge":"br-g","isGateway":true,` + v4,
		"bridge-default":   `"type":"bridge","bridge":"br-d","isDefaultGateway":true,` + both,
		"bridge-static":    `"type":"bridge","bridge":"br-s","isDefaultGateway":true,"mtu":1400,"hairpinMode":true,` + fixed,
		"bridge-dns-empty": `"type":"bridge","bridge":"br-e","dns":{"nameservers":[]},` + fixed,
		"bridge-mac":       `"type":"bridge","bridge":"br-m","runtimeConfig":{"mac":"02:00:00:00:00:77"},` + v4,
		"host-local":       `"type":"host-local",` + both,
		"static":           `"type":"static",` + fixed,
	}
	for name, body := range confs {
		for _, version := range []string{"0.2.0", "0.4.0", "1.1.0"} {
			if name == "loopback" && version != "1.1.0" {
				continue // the reference plugin writes the new form under the old version's name; weft does not
			}
			t.Run(name+"-"+version, func(t *testing.T) {
				conf := `{"cniVersion":"` + version + `","name":"net",` + body + `}`
				theirs, theirErr := runReference(t, bin, strings.ReplaceAll(conf, "DIR", t.TempDir()))
				ours, ourErr := planned(t, strings.ReplaceAll(conf, "DIR", t.TempDir()), version)
				if (theirErr == nil) != (ourErr == nil) {
					t.Fatalf("reference: %v\nweft: %v", theirErr, ourErr)
				}
				if theirErr == nil {
					if diff := cmp.Diff(comparable(t, theirs), comparable(t, ours)); diff != "" {
						t.Errorf("(-reference +weft):\n%s", diff)
					}
				}
			})
		}
	}
}

func kind(t *testing.T, conf string) string {
	t.Helper()
	var c struct{ Type string }
	if err := json.Unmarshal([]byte(conf), &c); err != nil {
		t.Fatal(err)
	}
	return c.Type
}

func runReference(t *testing.T, bin, conf string) ([]byte, error) {
	t.Helper()
	netns := filepath.Join(t.TempDir(), "pod")
	run := func(verb string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(bin, kind(t, conf)))
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID=c1", "CNI_NETNS="+netns, "CNI_IFNAME=eth0",
			"CNI_PATH="+bin)
		cmd.Stdin = strings.NewReader(conf)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out.String())
		}
		return out.Bytes(), nil
	}
	nettest.Run(t, nil, "touch", netns)
	nettest.Run(t, nil, "unshare", "--net="+netns, "true")
	t.Cleanup(func() { nettest.Run(t, nil, "umount", netns) })
	out, err := run("ADD")
	_, _ = run("DEL") // what it leaves is in this test's own namespace
	return out, err
}

// planned is weft's answer without a kernel: nothing exists yet.
func planned(t *testing.T, conf, version string) ([]byte, error) {
	t.Helper()
	n, prev, err := ParsePlugin([]byte(conf))
	if err != nil {
		return nil, err
	}
	p := n.Plugins[0]
	ask := ipam.Request{Conf: p.Raw, Network: n.Name, ContainerID: "c1", IfName: "eth0"}
	ipams := allocators()
	if a := ipams[p.Type]; a != nil {
		r, err := a.Add(context.Background(), ask)
		if err != nil {
			return nil, err
		}
		return FormatResult(r, version)
	}
	planner := plugin.Builtin()[p.Type]
	if err := plugin.Validate(planner, p); err != nil {
		return nil, err
	}
	in := plugin.Input{
		Conf: p, Chain: plugin.Chain{Prev: prev}, Answers: state.Answers{},
		Request: model.Request{Network: n.Name, ContainerID: "c1", IfName: "eth0", Netns: "/ns/pod", CNIVersion: version},
	}
	if a := ipams[ipamType(p)]; a != nil {
		r, err := a.Add(context.Background(), ask)
		if err != nil {
			return nil, err
		}
		in.IPAM = &r
	}
	step, err := planner.Plan(in)
	if err != nil {
		return nil, err
	}
	return FormatResult(step.Result, version)
}

// comparable takes out what is chosen at random or by place.
func comparable(t *testing.T, b []byte) any {
	t.Helper()
	text := regexp.MustCompile(`veth[0-9a-f]{8,11}`).ReplaceAllString(string(b), "VETH")
	text = regexp.MustCompile(`"sandbox": "[^"]*/pod"`).ReplaceAllString(text, `"sandbox": "NETNS"`)
	text = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`).ReplaceAllStringFunc(text, func(mac string) string {
		if strings.HasPrefix(mac, "00:00:00") || strings.HasPrefix(mac, "02:00:00") {
			return mac // configured
		}
		return "MAC"
	})
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return v
}
