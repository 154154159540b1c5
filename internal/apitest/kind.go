// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"net/http"
	"time"

	"sigs.k8s.io/yaml"
)

// definition is what matters here of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
}

// Define makes a kind, given as the text of its CustomResourceDefinition (YAML or JSON), and waits until the server
// serves it: neither its condition Established nor its place in the list of groups promises that the next request finds
// it.
func (s *Server) Define(text []byte) {
	s.t.Helper()
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		s.t.Fatal(err)
	}
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		s.t.Fatal(err)
	}
	s.Do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(raw))
	for _, v := range d.Spec.Versions {
		if v.Served {
			s.served("/apis/" + d.Spec.Group + "/" + v.Name + "/" + d.Spec.Names.Plural)
		}
	}
}

// served waits until objects can be listed.
func (s *Server) served(path string) {
	s.t.Helper()
	var code int
	var answer []byte
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if code, answer, err = s.try(http.MethodGet, path, "", nil); err == nil && code == http.StatusOK {
			return
		}
	}
	s.t.Fatalf("kind not served: GET %s: %d %v %s", path, code, err, answer)
}
