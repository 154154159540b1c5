// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// looker is an IPAM plugin that needs its interface: it refuses when that is missing, down, or has addresses already.
const looker = `
see() { nsenter --net=$CNI_NETNS ip -o $1 show dev $CNI_IFNAME 2>&1; }
case $CNI_COMMAND in
ADD)
	see link | grep -q '[<,]UP[,>]' || { echo "{\"code\":120,\"msg\":\"no link: $(see link | tr -d '\\n\"')\"}"; exit 1; }
	see addr | grep -q 'inet ' && { echo '{"code":121,"msg":"addresses already"}'; exit 1; }
	echo '{"cniVersion":"1.1.0","ips":[{"address":"10.8.0.7/24","gateway":"10.8.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}';;
DEL) see link >> "$0.del";;
esac; exit 0`

// A foreign IPAM plugin runs when the interface exists and is up, and again before it goes; what comes after it in the
// list is planned with the addresses.
func TestLateIPAM(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	for name, plugin := range map[string]string{
		"bridge": `{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipMasq":true,"ipam":{"type":"looker"}}`,
		"ptp":    `{"type":"ptp","ipMasq":true,"ipam":{"type":"looker"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			id, ns := n.pod()
			job := n.job(n.list(`{"type":"loopback"}`, plugin), id, ns)
			result := n.add(job)
			given := func(ip model.IP) bool { return ip.Address.String() == "10.8.0.7/24" }
			if !slices.ContainsFunc(result.IPs, given) {
				t.Errorf("%+v", result)
			}
			nettest.Run(t, ns, "ping", "-c1", "-W20", "10.8.0.1")
			job.Prev = &result
			if err := n.Check(t.Context(), job); err != nil {
				t.Error(err)
			}
			again := n.add(job)
			if d := diff(result, again); d != "" {
				t.Errorf("the same ADD again: %s", d)
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
			n.clean("DEL")
			out := nettest.Run(t, nil, "cat", n.bin+"/looker.del")
			if !strings.Contains(out, "eth0") || strings.Contains(out, "does not exist") {
				t.Errorf("the interface was gone before its addresses were given back: %s", out)
			}
		})
	}
}

// A failure at any step of an ADD whose IPAM is late leaves nothing.
func TestLateIPAMFailsAnywhere(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	conf := n.list(`{"type":"bridge","bridge":"abr0","isDefaultGateway":true,"ipMasq":true,"ipam":{"type":"looker"}}`,
		`{"type":"loopback"}`)
	errStep := errors.New("not today")
	for k := 0; ; k++ {
		at := ""
		cfg := n.cfg
		seen := 0
		cfg.Failpoint = func(name string) error {
			if seen++; seen == k+1 && !strings.Contains(name, "undo") {
				at = name
				return errStep
			}
			return nil
		}
		id, ns := n.pod()
		_, err := attach.New(cfg).Add(t.Context(), n.job(conf, id, ns))
		if err == nil {
			if k < 8 {
				t.Errorf("only %d steps", k)
			}
			if err := n.Del(t.Context(), n.job(conf, id, ns)); err != nil {
				t.Error(err)
			}
			break
		}
		if !errors.Is(err, errStep) {
			t.Errorf("step %d: %v", k, err)
		}
		n.clean(fmt.Sprintf("failure at step %d, %s", k, at))
	}
	n.clean("all")
}

// An existing interface of the name is not changed.
func TestLateIPAMNameTaken(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	id, ns := n.pod()
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "bridge")
	_, err := n.Add(t.Context(), n.job(n.list(`{"type":"ptp","ipam":{"type":"looker"}}`), id, ns))
	wantCode(t, "ADD", err, model.CodeExists, "eth0")
	nettest.Run(t, ns, "ip", "link", "show", "eth0")
	if v := n.verbs("looker"); v != "" {
		t.Errorf("IPAM was asked: %s", v)
	}
	n.clean("a refused ADD")
}

// Where nothing must wait, everything is planned whole and applied once.
func TestActs(t *testing.T) {
	n := newNode(t)
	n.plugin("looker", looker)
	for conf, want := range map[string]string{
		bridge: "ipam apply",
		`{"type":"bridge","bridge":"abr0","isGateway":true,"ipam":{"type":"looker"}}`: "apply ipam apply",
		`{"type":"bridge","bridge":"abr0"}`:                                           "apply",
	} {
		id, ns := n.pod()
		job := n.job(n.list(`{"type":"loopback"}`, conf, `{"type":"loopback"}`), id, ns)
		n.add(job)
		rec, _, err := n.ledger.Get(job.Request.Key())
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, act := range rec.Acts {
			kinds = append(kinds, string(act.Kind))
		}
		got := strings.Join(kinds, " ")
		if strings.HasPrefix(want, "apply ipam") {
			want = "apply " + want // what comes before it in the list
		}
		if got != want {
			t.Errorf("%s: acts %s, want %s", conf, got, want)
		}
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
		n.clean("DEL")
	}
}
