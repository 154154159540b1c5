// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"

	"github.com/weft-net/weft/deploy"
	"github.com/weft-net/weft/internal/model"
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
	return c.awaitKinds(ctx, append(own, others...))
}

// servedWithin is how long an API server may take until it serves a kind of which it has the definition.
const servedWithin = time.Minute

// awaitKinds waits until the API server serves the kinds: until then it rejects their objects.
func (c *Cluster) awaitKinds(ctx context.Context, definitions []*unstructured.Unstructured) error {
	api, err := c.actions.RESTClientGetter.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	for _, o := range definitions {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, servedWithin, true, func(context.Context) (bool, error) {
			api.Invalidate()
			_, lists, err := api.ServerGroupsAndResources()
			if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // of another group
				return false, nil //nolint:nilerr // it is asked again
			}
			return slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
				return strings.HasPrefix(l.GroupVersion, group+"/") &&
					slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
			}), nil
		})
		if err != nil {
			return model.Errorf(model.CodeTryAgain, "kubectl describe customresourcedefinition "+o.GetName(),
				"kind %s is not served after %s: %w", o.GetName(), servedWithin, err)
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
