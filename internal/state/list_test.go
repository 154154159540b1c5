// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestListIsStoredAsSlice: what is stored does not depend on the method of a list.
func TestListIsStoredAsSlice(t *testing.T) {
	type list struct {
		Kept  List[Link] `json:"kept"`
		Links List[Link] `json:"links,omitempty"`
	}
	type slice struct {
		Kept  []Link `json:"kept"`
		Links []Link `json:"links,omitempty"`
	}
	links := []Link{{Name: "eth0", MTU: 1400, Up: On()}, {Name: "a", Alias: `<a & "b">`}}
	for name, want := range map[string]slice{
		"missing": {}, "empty": {Kept: []Link{}, Links: []Link{}}, "links": {Kept: links, Links: links},
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(list{Kept: want.Kept, Links: want.Links})
		if err != nil || string(got) != string(text) {
			t.Errorf("%s: %s, want %s: %v", name, got, text, err)
		}
		var back list
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if len(want.Links) == 0 {
			want.Links = nil
		}
		if !reflect.DeepEqual(slice{Kept: back.Kept, Links: back.Links}, want) {
			t.Errorf("%s: decoded %+v", name, back)
		}
	}
}
