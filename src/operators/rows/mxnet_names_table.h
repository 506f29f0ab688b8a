// ATen operators, and the names of MXNet's operators, 1.x and 2.x, whose work they do.
#pragma once

#include "operators/rows/alias.h"

namespace mezzo::rows {

inline constexpr Meaning kMxnetNames[] = {
    {"_masked_softmax", "masked_softmax"},
    {"_standard_gamma",
     "_npi_gamma _random_gamma _random_gamma_like _sample_gamma random_gamma sample_gamma"},
    {"_unique2", "_npi_unique"},
    {"abs", "_npi_absolute _sparse_abs"},
    {"acos", "_npi_arccos _sparse_arccos arccos"},
    {"acosh", "_npi_arccosh _sparse_arccosh arccosh"},
    {"adaptive_avg_pool2d", "_contrib_AdaptiveAvgPooling2D"},
    {"add.Scalar", "_PlusScalar _npi_add_scalar _plus_scalar _scatter_plus_scalar"},
    {"add.Tensor",
     "ElementWiseSum _Plus _add _grad_add _npi_add _plus _sparse_ElementWiseSum _sparse_add_n "
     "_sparse_broadcast_add _sparse_broadcast_plus _sparse_elemwise_add add_n broadcast_add "
     "broadcast_plus elemwise_add"},
    {"addcmul", "_contrib_quadratic"},
    {"affine_grid_generator", "GridGenerator"},
    {"all", "_npi_all"},
    {"allclose", "_contrib_allclose"},
    {"amax", "_npi_max max_axis"},
    {"amin", "_npi_min min_axis"},
    {"any", "_npi_any"},
    {"argmax", "_npi_argmax argmax_channel"},
    {"argmin", "_npi_argmin"},
    {"asin", "_npi_arcsin _sparse_arcsin arcsin"},
    {"asinh", "_npi_arcsinh _sparse_arcsinh arcsinh"},
    {"atan", "_npi_arctan _sparse_arctan arctan"},
    {"atan2", "_npi_arctan2 _npi_arctan2_scalar _npi_rarctan2_scalar"},
    {"atanh", "_npi_arctanh _sparse_arctanh arctanh"},
    {"atleast_1d", "_npi_atleast_1d"},
    {"atleast_2d", "_npi_atleast_2d"},
    {"atleast_3d", "_npi_atleast_3d"},
    {"baddbmm", "_linalg_gemm linalg_gemm"},
    {"batch_norm", "BatchNorm BatchNormWithReLU BatchNorm_v1 CuDNNBatchNorm _sg_onednn_batch_norm"},
    {"batch_norm_stats batch_norm_gather_stats_with_counts", "_contrib_SyncBatchNorm"},
    {"bernoulli", "_npi_bernoulli"},
    {"bincount", "_npi_bincount"},
    {"binomial", "_random_binomial _random_binomial_like _sample_binomial"},
    {"bitwise_and", "_npi_bitwise_and _npi_bitwise_and_scalar"},
    {"bitwise_left_shift",
     "_npi_bitwise_left_shift _npi_bitwise_left_shift_scalar _npi_rbitwise_left_shift_scalar"},
    {"bitwise_not", "_npi_bitwise_not"},
    {"bitwise_or", "_npi_bitwise_or _npi_bitwise_or_scalar"},
    {"bitwise_right_shift",
     "_npi_bitwise_right_shift _npi_bitwise_right_shift_scalar "
     "_npi_rbitwise_right_shift_scalar"},
    {"bitwise_xor", "_npi_bitwise_xor _npi_bitwise_xor_scalar"},
    {"bmm",
     "_contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt "
     "_contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt "
     "_linalg_gemm2 _sg_onednn_batch_dot _sg_onednn_selfatt_qk _sg_onednn_selfatt_qk_split "
     "_sg_onednn_selfatt_valatt batch_dot linalg_gemm2"},
    {"cat",
     "Concat _npi_delete _npi_insert_scalar _npi_insert_slice _npi_insert_tensor "
     "_rnn_param_concat _sparse_concat concat"},
    {"ceil", "_npi_ceil _sparse_ceil"},
    {"cholesky_inverse", "_linalg_potri linalg_potri"},
    {"clamp", "_sparse_clip clip"},
    {"clone", "_copy _npi_copy identity"},
    {"column_stack", "_npi_column_stack"},
    {"conv1d conv2d conv3d convolution _convolution", "Convolution Convolution_v1"},
    {"conv2d", "_sg_mkldnn_conv _sg_onednn_conv"},
    {"conv_transpose1d conv_transpose2d conv_transpose3d", "Deconvolution"},
    {"copysign.Scalar", "_npi_copysign_scalar _npi_rcopysign_scalar"},
    {"copysign.Tensor", "_npi_copysign"},
    {"cos", "_npi_cos _sparse_cos"},
    {"cosh", "_npi_cosh _sparse_cosh"},
    {"cross", "_npi_cross"},
    {"cross_entropy_loss", "softmax_cross_entropy"},
    {"ctc_loss", "CTCLoss _contrib_CTCLoss _contrib_ctc_loss"},
    {"cumsum", "_npi_cumsum"},
    {"deg2rad", "_npi_radians _sparse_radians radians"},
    {"dequantize", "_contrib_dequantize"},
    {"detach", "BlockGrad _sparse_stop_gradient stop_gradient"},
    {"diag", "_npi_diag"},
    {"diag_embed", "_linalg_makediag linalg_makediag"},
    {"diagflat", "_npi_diagflat"},
    {"diagonal", "_linalg_extractdiag _npi_diagonal linalg_extractdiag"},
    {"diff", "_npi_diff _npi_ediff1d"},
    {"div.Scalar", "_DivScalar _div_scalar _npi_true_divide_scalar"},
    {"div.Tensor",
     "_Div _contrib_div_sqrt_dim _div _npi_true_divide _scatter_elemwise_div "
     "_sparse_broadcast_div _sparse_elemwise_div broadcast_div elemwise_div softsign"},
    {"dot mv mm matmul", "_npi_dot _sparse_dot dot"},
    {"dropout", "Dropout"},
    {"dsplit", "_npi_dsplit"},
    {"dstack", "_npi_dstack"},
    {"einsum", "_npi_einsum khatri_rao"},
    {"embedding", "Embedding _contrib_SparseEmbedding _sparse_Embedding"},
    {"eq.Scalar", "_EqualScalar _equal_scalar _npi_equal_scalar"},
    {"eq.Tensor", "_Equal _equal _npi_equal broadcast_equal"},
    {"exp", "_npi_exp _sparse_exp"},
    {"expand", "_npi_broadcast_to broadcast_axes broadcast_axis broadcast_like broadcast_to"},
    {"expm1", "_npi_expm1 _sparse_expm1"},
    {"exponential",
     "_npi_exponential _random_exponential _random_exponential_like _sample_exponential "
     "random_exponential sample_exponential"},
    {"fft_fft", "_contrib_fft"},
    {"fft_ifft", "_contrib_ifft"},
    {"fill", "_set_value"},
    {"fix", "_npi_fix _sparse_fix"},
    {"flatten", "Flatten"},
    {"flip", "_npi_flip reverse"},
    {"flip gather", "SequenceReverse"},
    {"floor", "_npi_floor _sparse_floor"},
    {"floor_divide", "_npi_floor_divide _npi_floor_divide_scalar _npi_rfloor_divide_scalar"},
    {"fmax", "_npi_fmax _npi_fmax_scalar"},
    {"fmin", "_npi_fmin _npi_fmin_scalar"},
    {"fmod.Scalar", "_npi_fmod_scalar _npi_rfmod_scalar"},
    {"fmod.Tensor", "_npi_fmod"},
    {"full_like", "_npi_full_like"},
    {"gather", "batch_take choose_element_0index pick"},
    {"gcd", "_npi_gcd _npi_gcd_scalar"},
    {"ge.Scalar", "_GreaterEqualScalar _greater_equal_scalar _npi_greater_equal_scalar"},
    {"ge.Tensor", "_Greater_Equal _greater_equal _npi_greater_equal broadcast_greater_equal"},
    {"grid_sampler", "BilinearSampler SpatialTransformer"},
    {"group_norm", "GroupNorm"},
    {"gt.Scalar", "_GreaterScalar _greater_scalar _npi_greater_scalar"},
    {"gt.Tensor", "_Greater _greater _npi_greater broadcast_greater"},
    {"hardsigmoid", "hard_sigmoid"},
    {"histc", "_histogram"},
    {"hsplit", "_npi_hsplit"},
    {"hstack", "_npi_hstack"},
    {"hypot", "_Hypot _HypotScalar _hypot _hypot_scalar _npi_hypot broadcast_hypot"},
    {"index", "_npi_advanced_indexing _npi_advanced_indexing_multiple gather_nd"},
    {"index_add", "_npx_index_add"},
    {"index_copy", "_contrib_index_copy"},
    {"index_put",
     "_linalg_maketrian _npx_index_update _scatter_set_nd linalg_maketrian scatter_nd"},
    {"index_select", "_shuffle shuffle take"},
    {"index_select gather", "SequenceLast"},
    {"instance_norm", "InstanceNorm"},
    {"isfinite", "_npi_isfinite"},
    {"isinf", "_npi_isinf"},
    {"isnan", "_npi_isnan"},
    {"isneginf", "_npi_isneginf"},
    {"isposinf", "_npi_isposinf"},
    {"kron", "_npi_kron"},
    {"layer_norm", "LayerNorm"},
    {"lcm", "_npi_lcm _npi_lcm_scalar"},
    {"ldexp", "_npi_ldexp _npi_ldexp_scalar _npi_rldexp_scalar"},
    {"le.Scalar", "_LesserEqualScalar _lesser_equal_scalar _npi_less_equal_scalar"},
    {"le.Tensor", "_Lesser_Equal _lesser_equal _npi_less_equal broadcast_lesser_equal"},
    {"leaky_relu prelu elu selu gelu rrelu", "LeakyReLU"},
    {"lgamma", "_sparse_gamma _sparse_gammaln gamma gammaln"},
    {"linalg_cholesky", "_linalg_potrf _npi_cholesky linalg_potrf"},
    {"linalg_det", "_linalg_det"},
    {"linalg_eig", "_npi_eig"},
    {"linalg_eigh", "_linalg_syevd _npi_eigh"},
    {"linalg_eigvals", "_npi_eigvals"},
    {"linalg_eigvalsh", "_npi_eigvalsh"},
    {"linalg_inv", "_linalg_inverse linalg_inverse"},
    {"linalg_lstsq", "_npi_lstsq"},
    {"linalg_matrix_rank", "_npi_matrix_rank _npi_matrix_rank_none_tol"},
    {"linalg_norm", "_npi_norm"},
    {"linalg_pinv", "_npi_pinv _npi_pinv_scalar_rcond"},
    {"linalg_qr", "_linalg_gelqf _npi_qr linalg_gelqf"},
    {"linalg_slogdet", "_linalg_slogdet"},
    {"linalg_solve", "_npi_solve"},
    {"linalg_solve_triangular", "_linalg_trsm linalg_trsm"},
    {"linalg_svd", "_npi_svd"},
    {"linalg_tensorinv", "_npi_tensorinv"},
    {"linalg_tensorsolve", "_npi_tensorsolve"},
    {"linear addmm matmul",
     "FullyConnected _sg_mkldnn_fully_connected _sg_onednn_fully_connected "
     "_sparse_FullyConnected"},
    {"log", "_linalg_sumlogdiag _npi_log _sparse_log linalg_sumlogdiag"},
    {"log10", "_npi_log10 _sparse_log10"},
    {"log1p", "_npi_log1p _sparse_log1p"},
    {"log2", "_npi_log2 _sparse_log2"},
    {"log_softmax", "masked_log_softmax"},
    {"logaddexp", "_npi_logaddexp _npi_logaddexp_scalar"},
    {"logical_and",
     "_LogicalAndScalar _Logical_And _logical_and _logical_and_scalar _npi_logical_and "
     "_npi_logical_and_scalar broadcast_logical_and"},
    {"logical_not", "_npi_logical_not"},
    {"logical_or",
     "_LogicalOrScalar _Logical_Or _logical_or _logical_or_scalar _npi_logical_or "
     "_npi_logical_or_scalar broadcast_logical_or"},
    {"logical_xor",
     "_LogicalXorScalar _Logical_Xor _logical_xor _logical_xor_scalar _npi_logical_xor "
     "_npi_logical_xor_scalar broadcast_logical_xor"},
    {"lstm gru rnn_tanh rnn_relu", "RNN"},
    {"lt.Scalar", "_LesserScalar _lesser_scalar _npi_less_scalar"},
    {"lt.Tensor", "_Lesser _lesser _npi_less broadcast_lesser"},
    {"masked_fill", "SequenceMask _npi_boolean_mask_assign_scalar"},
    {"masked_scatter", "_npi_boolean_mask_assign_tensor"},
    {"masked_select index", "_contrib_boolean_mask"},
    {"matmul", "_linalg_syrk _linalg_trmm _npi_matmul linalg_syrk linalg_trmm"},
    {"max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
     "adaptive_avg_pool2d adaptive_avg_pool3d",
     "Pooling Pooling_v1"},
    {"maximum", "_Maximum _MaximumScalar _maximum _maximum_scalar broadcast_maximum"},
    {"mean", "_npi_average _npi_mean _sparse_mean"},
    {"meshgrid", "_contrib_index_array _npi_indices"},
    {"minimum", "_Minimum _MinimumScalar _minimum _minimum_scalar broadcast_minimum"},
    {"movedim", "_npi_moveaxis _npi_rollaxis"},
    {"mul.Scalar", "_MulScalar _mul_scalar _npi_multiply_scalar"},
    {"mul.Tensor",
     "_Mul _mul _npi_multiply _sparse_broadcast_mul _sparse_elemwise_mul broadcast_mul "
     "elemwise_mul"},
    {"multi_margin_loss", "SVMOutput"},
    {"multinomial",
     "_npi_choice _npi_multinomial _sample_categorical _sample_multinomial "
     "_sample_unique_zipfian sample_multinomial"},
    {"nan_to_num", "_npi_nan_to_num"},
    {"ne.Scalar", "_NotEqualScalar _not_equal_scalar _npi_not_equal_scalar"},
    {"ne.Tensor", "_Not_Equal _not_equal _npi_not_equal broadcast_not_equal"},
    {"neg", "_npi_negative _sparse_negative negative"},
    {"nonzero", "_npx_nonzero"},
    {"norm", "_sparse_norm"},
    {"norm linalg_vector_norm", "L2Normalization"},
    {"normal",
     "_npi_normal _npi_normal_n _random_normal _random_normal_like _sample_normal "
     "random_normal sample_normal"},
    {"one_hot", "_onehot_encode"},
    {"pad constant_pad_nd", "Pad _npi_pad"},
    {"permute", "_npi_transpose"},
    {"pixel_shuffle", "depth_to_space"},
    {"pixel_unshuffle", "space_to_depth"},
    {"poisson",
     "_random_poisson _random_poisson_like _sample_poisson random_poisson sample_poisson"},
    {"pow",
     "LRN _Power _PowerScalar _RPowerScalar _npi_cbrt _npi_power _npi_power_scalar "
     "_npi_rpower_scalar _power _power_scalar _rpower_scalar _sparse_cbrt broadcast_power "
     "cbrt rcbrt"},
    {"pow mul.Scalar", "_sg_pow_mul_scalar"},
    {"prod", "_npi_prod nanprod"},
    {"quantile", "_npi_percentile"},
    {"quantize_per_tensor", "_contrib_quantize _contrib_quantize_asym _contrib_quantize_v2"},
    {"rad2deg", "_npi_degrees _sparse_degrees degrees"},
    {"reciprocal", "_RDivScalar _npi_reciprocal _npi_rtrue_divide_scalar _rdiv_scalar"},
    {"relu", "_npx_relu _sparse_relu"},
    {"relu sigmoid tanh softplus", "Activation"},
    {"remainder.Scalar",
     "_ModScalar _RModScalar _mod_scalar _npi_mod_scalar _npi_rmod_scalar _rmod_scalar"},
    {"remainder.Tensor", "_Mod _mod _npi_mod broadcast_mod"},
    {"repeat_interleave", "_npi_repeats"},
    {"reshape", "Reshape _contrib_dynamic_reshape _np_reshape _npx_reshape"},
    {"roll", "_npi_roll"},
    {"rot90", "_npi_rot90"},
    {"round", "_contrib_round_ste _npi_around _npi_rint _sparse_rint _sparse_round rint"},
    {"rsqrt", "_sparse_rsqrt"},
    {"rsub.Scalar", "_RMinusScalar _npi_rsubtract_scalar _rminus_scalar"},
    {"scatter", "fill_element_0index"},
    {"searchsorted lerp", "_npi_interp"},
    {"sigmoid",
     "LogisticRegressionOutput _npx_sigmoid _sparse_LogisticRegressionOutput _sparse_sigmoid"},
    {"sign", "_contrib_sign_ste _npi_sign _sparse_sign"},
    {"sin", "_npi_sin _sparse_sin"},
    {"sinh", "_npi_sinh _sparse_sinh"},
    {"slice", "Crop _sparse_slice crop slice_axis slice_like"},
    {"slice_scatter", "_crop_assign _crop_assign_scalar _slice_assign _slice_assign_scalar"},
    {"smooth_l1_loss huber_loss", "smooth_l1"},
    {"softmax", "Softmax SoftmaxActivation SoftmaxOutput softmin"},
    {"sparse_mask", "_sparse_retain"},
    {"split chunk", "SliceChannel _split_v2"},
    {"sqrt", "_npi_sqrt _sparse_sqrt"},
    {"square", "_npi_square _sparse_square _square_sum"},
    {"squeeze", "_npi_squeeze"},
    {"std", "_npi_std"},
    {"sub.Scalar", "_MinusScalar _minus_scalar _npi_subtract_scalar _scatter_minus_scalar"},
    {"sub.Tensor",
     "_Minus _minus _npi_subtract _sparse_broadcast_minus _sparse_broadcast_sub "
     "_sparse_elemwise_sub _sub broadcast_minus broadcast_sub elemwise_sub"},
    {"sum", "_npi_sum _sparse_sum sum_axis"},
    {"tan", "_npi_tan _sparse_tan"},
    {"tanh", "_npi_tanh _sparse_tanh"},
    {"tensordot", "_npi_tensordot _npi_tensordot_int_axes"},
    {"to_sparse to_dense", "_sparse_cast_storage cast_storage"},
    {"trace", "_npi_trace"},
    {"transpose", "SwapAxis swapaxes"},
    {"tril", "_npi_tri _npi_tril"},
    {"tril triu", "_linalg_extracttrian linalg_extracttrian"},
    {"triu", "_npi_triu"},
    {"trunc", "_npi_trunc _sparse_trunc"},
    {"unfold mul.Tensor sum", "Correlation"},
    {"uniform",
     "_npi_uniform _npi_uniform_n _random_uniform _random_uniform_like _sample_uniform "
     "random_uniform sample_uniform"},
    {"unsqueeze", "expand_dims"},
    {"upsample_bilinear2d", "_contrib_BilinearResize2D"},
    {"upsample_nearest2d conv_transpose2d", "UpSampling"},
    {"var", "_npi_var"},
    {"var_mean", "moments"},
    {"view_as reshape", "_identity_with_attr_like_rhs reshape_like"},
    {"vstack", "_npi_vstack"},
    {"where", "_npi_where _npi_where_lscalar _npi_where_rscalar _npi_where_scalar2 _sparse_where"},
    {"zero", "reset_arrays"},
    {"zeros_like", "_sparse_zeros_like"},
};

// Names without an ATen operator that could be cast: optimizers, image input, int8, creation of
// tensors, control flow, parts of other libraries.
inline constexpr std::string_view kMxnetForeign =
    "Cast Custom IdentityAttachKLSparseReg LinearRegressionOutput MAERegressionOutput MakeLoss "
    "ROIPooling _CachedOp _CachedOpThreadSafe _CrossDeviceCopy _CustomFunction _FusedOp "
    "_FusedOpHelper _FusedOpOutHelper _NDArray _Native _NoGradient _TensorRT _adabelief_update "
    "_adamw_update _arange _broadcast_backward _cond _contrib_DeformableConvolution "
    "_contrib_DeformablePSROIPooling _contrib_MultiBoxDetection _contrib_MultiBoxPrior "
    "_contrib_MultiBoxTarget _contrib_MultiProposal _contrib_PSROIPooling _contrib_Proposal "
    "_contrib_ROIAlign _contrib_RROIAlign _contrib_arange_like _contrib_bipartite_matching "
    "_contrib_box_decode _contrib_box_encode _contrib_box_iou _contrib_box_nms "
    "_contrib_box_non_maximum_suppression _contrib_calibrate_entropy _contrib_count_sketch "
    "_contrib_dgl_adjacency _contrib_dgl_csr_neighbor_non_uniform_sample "
    "_contrib_dgl_csr_neighbor_uniform_sample _contrib_dgl_graph_compact _contrib_dgl_subgraph "
    "_contrib_edge_id _contrib_getnnz _contrib_gradientmultiplier _contrib_group_adagrad_update "
    "_contrib_hawkesll _contrib_intgemm_fully_connected _contrib_intgemm_maxabsolute "
    "_contrib_intgemm_prepare_data _contrib_intgemm_prepare_weight _contrib_intgemm_take_weight "
    "_contrib_mrcnn_mask_target _contrib_quantized_act _contrib_quantized_batch_norm "
    "_contrib_quantized_batch_norm_relu _contrib_quantized_concat _contrib_quantized_conv "
    "_contrib_quantized_elemwise_add _contrib_quantized_elemwise_mul "
    "_contrib_quantized_embedding _contrib_quantized_flatten _contrib_quantized_fully_connected "
    "_contrib_quantized_pooling _contrib_quantized_reshape _contrib_quantized_rnn "
    "_contrib_quantized_transpose _contrib_requantize _contrib_sldwin_atten_context "
    "_contrib_sldwin_atten_mask_like _contrib_sldwin_atten_score _copyto _cvcopyMakeBorder "
    "_cvimdecode _cvimread _cvimresize _eye _foreach _full _image_adjust_lighting _image_crop "
    "_image_flip_left_right _image_flip_top_bottom _image_normalize _image_random_brightness "
    "_image_random_color_jitter _image_random_contrast _image_random_crop "
    "_image_random_flip_left_right _image_random_flip_top_bottom _image_random_hue "
    "_image_random_lighting _image_random_resized_crop _image_random_saturation _image_resize "
    "_image_to_tensor _imdecode _linspace _mp_adabelief_update _mp_adamw_update "
    "_multi_adabelief_update _multi_adamw_update _multi_lamb_update _multi_lans_update "
    "_multi_mp_adabelief_update _multi_mp_adamw_update _multi_mp_lamb_update "
    "_multi_mp_lans_update _npi_arange _npi_blackman _npi_diag_indices_from _npi_eye "
    "_npi_fill_diagonal _npi_full _npi_gumbel _npi_hamming _npi_hanning _npi_identity "
    "_npi_laplace _npi_linspace _npi_logistic _npi_logspace _npi_ones _npi_pareto _npi_polyval "
    "_npi_powerd _npi_rayleigh _npi_share_memory _npi_tril_indices _npi_weibull _npi_zeros "
    "_npx_cond _npx_constraint_check _npx_deformable_convolution _npx_foreach "
    "_npx_modulated_deformable_convolution _npx_quantized_reshape _npx_quantized_transpose "
    "_npx_while_loop _ones _random_generalized_negative_binomial "
    "_random_generalized_negative_binomial_like _random_negative_binomial "
    "_random_negative_binomial_like _random_pdf_dirichlet _random_pdf_exponential "
    "_random_pdf_gamma _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial "
    "_random_pdf_normal _random_pdf_poisson _random_pdf_uniform _random_randint "
    "_ravel_multi_index _sample_generalized_negative_binomial _sample_negative_binomial "
    "_sparse_LinearRegressionOutput _sparse_MAERegressionOutput _sparse_adagrad_update "
    "_sparse_adam_update _sparse_ftrl_update _sparse_make_loss _sparse_sgd_mom_update "
    "_sparse_sgd_update _split_v2_backward _unravel_index _while_loop _zeros "
    "_zeros_without_dtype adam_update all_finite amp_cast amp_multicast cast ftml_update "
    "ftrl_update lamb_update_phase1 lamb_update_phase2 make_loss mp_lamb_update_phase1 "
    "mp_lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update mp_sgd_update multi_all_finite "
    "multi_lars multi_mp_sgd_mom_update multi_mp_sgd_update multi_sgd_mom_update "
    "multi_sgd_update multi_sum_sq nag_mom_update preloaded_multi_mp_sgd_mom_update "
    "preloaded_multi_mp_sgd_update preloaded_multi_sgd_mom_update preloaded_multi_sgd_update "
    "random_generalized_negative_binomial random_negative_binomial random_pdf_dirichlet "
    "random_pdf_exponential random_pdf_gamma random_pdf_generalized_negative_binomial "
    "random_pdf_negative_binomial random_pdf_normal random_pdf_poisson random_pdf_uniform "
    "random_randint ravel_multi_index rmsprop_update rmspropalex_update "
    "sample_generalized_negative_binomial sample_negative_binomial sgd_mom_update sgd_update "
    "shape_array signsgd_update signum_update size_array unravel_index";

}  // namespace mezzo::rows
