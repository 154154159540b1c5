// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestStoredLikeAnyStructure: what is stored does not depend on these methods.
func TestStoredLikeAnyStructure(t *testing.T) {
	type (
		origin    model.Origin
		vm        VM
		container Container
		granted   GrantedDevice
	)
	o := model.Origin{
		Pod: model.PodRef{Namespace: "a", Name: "<b>"}, Network: "n", Selection: json.RawMessage(`{"x":1}`),
		VM: &model.VMRef{Name: "vm"}, Annotations: [][2]string{{"k", "v"}},
	}
	v := VM{Key: "k", Pod: "p", Owner: 107}
	c := Container{Link: "l", Labels: map[string]string{"b": "2", "a": "1"}, Known: true}
	g := GrantedDevice{Root: "/r", Dev: 1, Ino: 2, Made: true}
	for _, pair := range [][2]any{
		{o, origin(o)}, {model.Origin{}, origin{}}, {v, vm(v)}, {c, container(c)}, {Container{}, container{}}, {g, granted(g)},
	} {
		got, err := json.Marshal(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(pair[1])
		if err != nil || string(got) != string(want) {
			t.Errorf("%s, want %s: %v", got, want, err)
		}
	}
}
