// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// The workload of a pod is its controller, or what has created that.
func TestWorkload(t *testing.T) {
	for meta, want := range map[string]string{
		`{}`: "",
		`{"labels":{"pod-template-hash":"5d4"},"ownerReferences":[{"kind":"ReplicaSet","name":"web-5d4","controller":true}]}`: "shop/web",
		`{"ownerReferences":[{"kind":"ReplicaSet","name":"web-5d4","controller":true}]}`:                                      "shop/web-5d4",
		`{"ownerReferences":[{"kind":"ReplicaSet","name":"web"}]}`:                                                            "",
		`{"ownerReferences":[{"kind":"StatefulSet","name":"db","controller":true}]}`:                                          "shop/db",
		`{"ownerReferences":[{"kind":"DaemonSet","name":"log","controller":true}]}`:                                           "shop/log",
		`{"ownerReferences":[{"kind":"Job","name":"backup-29384756","controller":true}]}`:                                     "shop/backup",
		`{"ownerReferences":[{"kind":"Job","name":"import-2026","controller":true}]}`:                                         "shop/import-2026",
		`{"ownerReferences":[{"kind":"Job","name":"-29384756","controller":true}]}`:                                           "shop/-29384756",
		`{"annotations":{"lab.weft.dev/owner":"Deployment/web"}}`:                                                             "shop/web",
	} {
		o, err := store.NewObject([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"x",` + meta[1:len(meta)-1] +
			map[bool]string{true: "", false: ","}[meta == "{}"] + `"generation":1},"spec":{"containers":[{"name":"c"}]}}`))
		if err != nil {
			t.Fatalf("%s: %v", meta, err)
		}
		p, err := o.Pod()
		if err != nil {
			t.Fatal(err)
		}
		if got := workload(o, p); got != want {
			t.Errorf("%s: %q, want %q", meta, got, want)
		}
	}
}
