// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/weft-net/weft/deploy"
)

// manager is the name of what this package applies, in the objects' managedFields.
const manager = "weft-cluster"

// definitions are the definitions of kinds in the API.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// applyKinds applies the definitions of weft's kinds, which Helm would not upgrade. That of NetworkAttachmentDefinition is
// created if the cluster has none.
func (c *Cluster) applyKinds(ctx context.Context) error {
	own, err := decode(deploy.Kinds())
	if err != nil {
		return err
	}
	api := c.dynamic.Resource(definitions())
	for _, o := range own {
		if _, err := api.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
			return fmt.Errorf("kind %s: %w", o.GetName(), err)
		}
	}
	others, err := decode(deploy.NetworkAttachmentKind())
	if err != nil {
		return err
	}
	for _, o := range others {
		_, err := api.Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("kind %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// decode decodes YAML documents.
func decode(text string) (out []*unstructured.Unstructured, err error) {
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("definitions of kinds: %w", err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}
