// The conformance suite of sigs.k8s.io/network-policy-api, standard features, as one program that leaves its report.
//
// Its own (conformance/conformance_profile_test.go there) cannot leave tests out and say so in the report, and a kernel
// without SCTP has to leave out those that probe with it.
package cnp

import (
	"flag"
	"os"
	"regexp"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	reports "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

var (
	config  = flag.String("config", "", "the cluster's kubeconfig")
	output  = flag.String("output", "", "the file to write the report into")
	version = flag.String("version", "", "the version of weft that the report names")
	skip    = flag.String("skip", "^$", "a regular expression of names of tests to leave out")
)

func TestConformance(t *testing.T) {
	cluster, err := clientcmd.BuildConfigFromFlags("", *config)
	must(t, err)
	found, err := client.New(cluster, client.Options{})
	must(t, err)
	must(t, api.Install(found.Scheme()))
	must(t, apiextensions.AddToScheme(found.Scheme()))
	run, err := suite.NewConformanceProfileTestSuite(suite.ConformanceProfileOptions{
		Options: suite.Options{
			Client:     found,
			ClientSet:  kubernetes.NewForConfigOrDie(cluster),
			KubeConfig: *cluster,
			SkipTests:  left(),
			// The cluster goes away with all that is in it.
			CleanupBaseResources: false,
			SupportedFeatures:    suite.StandardFeatures.Clone(),
		},
		Implementation: reports.Implementation{
			Organization: "weft", Project: "weft", Version: *version, Contact: []string{},
		},
		ConformanceProfiles: suite.ParseConformanceProfiles(string(suite.CNPConformanceProfileName)),
	})
	must(t, err)
	run.Setup(t)
	must(t, run.Run(t, tests.ConformanceTests))
	report, err := run.Report()
	must(t, err)
	text, err := yaml.Marshal(report)
	must(t, err)
	must(t, os.WriteFile(*output, text, 0o644))
}

// left returns the names of the tests that do not run.
func left() (names []string) {
	named := regexp.MustCompile(*skip)
	for _, test := range tests.ConformanceTests {
		if named.MatchString(test.ShortName) {
			names = append(names, test.ShortName)
		}
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
