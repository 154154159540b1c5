// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// town is a book that knows namespaces.
type town struct {
	*book
	namespace model.Namespace
	err       error
	asked     int
}

func (b *town) Namespace(_ context.Context, name string) (model.Namespace, error) {
	b.asked++
	if b.err == nil && name != b.namespace.Name {
		return b.namespace, fmt.Errorf("namespace %s: %w", name, store.ErrNotFound)
	}
	return b.namespace, b.err
}

// What the pod and its namespace say reaches the pod's first network, where a plugin reads it.
func TestPodSettingText(t *testing.T) {
	const cni = "cni.projectcalico.org/"
	said := map[string]string{
		cni + "ipv4pools": `["a"]`, "kubernetes.io/ingress-bandwidth": "1M", "example.com/x": "y", NetworksKey: "plain",
	}
	app := model.Namespace{
		Name: "app", Labels: map[string]string{"team": "a"},
		Annotations: map[string]string{cni + "ipv4pools": `["b"]`, cni + "ipv6pools": `["c"]`},
	}
	pools := [2]string{cni + "ipv4pools", `["a"]`}
	of6, rate := [2]string{cni + "ipv6pools", `["c"]`}, [2]string{"kubernetes.io/ingress-bandwidth", "1M"}
	for _, tt := range []struct {
		name, plugins string
		ns            model.Namespace
		want          [][2]string
		labels        map[string]string
		asked         int
	}{
		{"calico", `{"type":"calico","ipam":{"type":"calico-ipam"}}`, app, [][2]string{pools, of6, rate}, app.Labels, 1},
		{
			"bandwidth beside", `{"type":"calico","ipam":{"type":"host-local"}},{"type":"bandwidth"}`, app,
			[][2]string{pools, of6},
			app.Labels, 1,
		},
		{"pools alone", `{"type":"ptp","ipam":{"type":"calico-ipam"}}`, app, nil, app.Labels, 1},
		{"nobody asks", `{"type":"ptp","ipam":{"type":"host-local"}}`, app, nil, nil, 0},
		{
			"no such namespace", `{"type":"calico","ipam":{"type":"calico-ipam"}}`,
			model.Namespace{Name: "other"},
			[][2]string{pools, rate},
			map[string]string{},
			1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &town{book: world(said), namespace: tt.ns}
			conf := `{"cniVersion":"1.0.0","name":"outer","type":"multus","delegates":[{"name":"pods","plugins":[` +
				tt.plugins + `]}]}`
			got, err := (&Resolver{Cluster: b, Devices: b}).Resolve(t.Context(), callOf(t, conf))
			if err != nil {
				t.Fatal(err)
			}
			first, second := got.Attachments[0], got.Attachments[1]
			if d := cmp.Diff(tt.want, first.Request.Origin.Annotations); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.labels, first.NamespaceLabels); d != "" {
				t.Error(d)
			}
			if second.Request.Origin.Annotations != nil || second.NamespaceLabels != nil {
				t.Errorf("the second network is told: %+v", second)
			}
			if b.asked != tt.asked {
				t.Errorf("asked %d times, want %d", b.asked, tt.asked)
			}
		})
	}
	b := &town{book: world(said), err: errors.New("no answer")}
	_, err := (&Resolver{
		Cluster: b, Devices: b,
	}).Resolve(
		t.Context(),
		callOf(t,
			`{"cniVersion":"1.0.0","name":"o","type":"multus","delegates":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`),
	)
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain || f.Msg != "namespace app is not known yet: no answer" {
		t.Errorf("%v", err)
	}
}
