; Kernels for the tests of package object. How the files beside this one were
; made from it stands in README.md.
target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [1024 x float] poison, align 16
@table = internal addrspace(4) constant [4 x i32] [i32 3, i32 5, i32 7, i32 11], align 16
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16>, <4 x i16>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
define amdgpu_kernel void @hidden(ptr addrspace(1) noalias writeonly %out, i32 %n) "amdgpu-flat-work-group-size"="128,128" {
  %i = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %g = getelementptr i8, ptr addrspace(4) %i, i64 12
  %s = load i16, ptr addrspace(4) %g
  %z = zext i16 %s to i32
  %r = add i32 %z, %n
  store i32 %r, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @lookup(ptr addrspace(1) %out, i32 %k) "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" {
  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %k
  %v = load i32, ptr addrspace(4) %p
  %a = alloca [64 x i32], addrspace(5)
  %q = getelementptr [64 x i32], ptr addrspace(5) %a, i32 0, i32 %k
  store volatile i32 %v, ptr addrspace(5) %q
  %w = load volatile i32, ptr addrspace(5) %q
  store i32 %w, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @mfma(ptr addrspace(1) %a, ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <4 x i16>, ptr addrspace(1) %a, i32 %t
  %x = load <4 x i16>, ptr addrspace(1) %pa
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %x, <4 x i16> %x, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %d2 = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %x, <4 x i16> %x, <4 x float> %d, i32 0, i32 0, i32 0)
  %l = getelementptr [1024 x float], ptr addrspace(3) @lds, i32 0, i32 %t
  %e = extractelement <4 x float> %d2, i32 1
  store float %e, ptr addrspace(3) %l
  fence syncscope("workgroup") seq_cst
  %f = load float, ptr addrspace(3) %l
  call void asm sideeffect "; use", "~{a19}"()
  %po = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %f, ptr addrspace(1) %po
  ret void
}
define amdgpu_kernel void @spills(ptr addrspace(1) %a, ptr addrspace(1) %out) #1 !reqd_work_group_size !0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p0 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 0
  %v0 = load volatile float, ptr addrspace(1) %p0
  %p1 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 1
  %v1 = load volatile float, ptr addrspace(1) %p1
  %p2 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 2
  %v2 = load volatile float, ptr addrspace(1) %p2
  %p3 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 3
  %v3 = load volatile float, ptr addrspace(1) %p3
  %p4 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 4
  %v4 = load volatile float, ptr addrspace(1) %p4
  %p5 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 5
  %v5 = load volatile float, ptr addrspace(1) %p5
  %p6 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 6
  %v6 = load volatile float, ptr addrspace(1) %p6
  %p7 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 7
  %v7 = load volatile float, ptr addrspace(1) %p7
  %p8 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 8
  %v8 = load volatile float, ptr addrspace(1) %p8
  %p9 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 9
  %v9 = load volatile float, ptr addrspace(1) %p9
  %p10 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 10
  %v10 = load volatile float, ptr addrspace(1) %p10
  %p11 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 11
  %v11 = load volatile float, ptr addrspace(1) %p11
  %p12 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 12
  %v12 = load volatile float, ptr addrspace(1) %p12
  %p13 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 13
  %v13 = load volatile float, ptr addrspace(1) %p13
  %p14 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 14
  %v14 = load volatile float, ptr addrspace(1) %p14
  %p15 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 15
  %v15 = load volatile float, ptr addrspace(1) %p15
  %p16 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 16
  %v16 = load volatile float, ptr addrspace(1) %p16
  %p17 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 17
  %v17 = load volatile float, ptr addrspace(1) %p17
  %p18 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 18
  %v18 = load volatile float, ptr addrspace(1) %p18
  %p19 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 19
  %v19 = load volatile float, ptr addrspace(1) %p19
  %p20 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 20
  %v20 = load volatile float, ptr addrspace(1) %p20
  %p21 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 21
  %v21 = load volatile float, ptr addrspace(1) %p21
  %p22 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 22
  %v22 = load volatile float, ptr addrspace(1) %p22
  %p23 = getelementptr [24 x float], ptr addrspace(1) %a, i32 %t, i32 23
  %v23 = load volatile float, ptr addrspace(1) %p23
  %q0 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 0
  store volatile float %v0, ptr addrspace(1) %q0
  %q1 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 1
  store volatile float %v1, ptr addrspace(1) %q1
  %q2 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 2
  store volatile float %v2, ptr addrspace(1) %q2
  %q3 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 3
  store volatile float %v3, ptr addrspace(1) %q3
  %q4 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 4
  store volatile float %v4, ptr addrspace(1) %q4
  %q5 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 5
  store volatile float %v5, ptr addrspace(1) %q5
  %q6 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 6
  store volatile float %v6, ptr addrspace(1) %q6
  %q7 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 7
  store volatile float %v7, ptr addrspace(1) %q7
  %q8 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 8
  store volatile float %v8, ptr addrspace(1) %q8
  %q9 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 9
  store volatile float %v9, ptr addrspace(1) %q9
  %q10 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 10
  store volatile float %v10, ptr addrspace(1) %q10
  %q11 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 11
  store volatile float %v11, ptr addrspace(1) %q11
  %q12 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 12
  store volatile float %v12, ptr addrspace(1) %q12
  %q13 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 13
  store volatile float %v13, ptr addrspace(1) %q13
  %q14 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 14
  store volatile float %v14, ptr addrspace(1) %q14
  %q15 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 15
  store volatile float %v15, ptr addrspace(1) %q15
  %q16 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 16
  store volatile float %v16, ptr addrspace(1) %q16
  %q17 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 17
  store volatile float %v17, ptr addrspace(1) %q17
  %q18 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 18
  store volatile float %v18, ptr addrspace(1) %q18
  %q19 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 19
  store volatile float %v19, ptr addrspace(1) %q19
  %q20 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 20
  store volatile float %v20, ptr addrspace(1) %q20
  %q21 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 21
  store volatile float %v21, ptr addrspace(1) %q21
  %q22 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 22
  store volatile float %v22, ptr addrspace(1) %q22
  %q23 = getelementptr [24 x float], ptr addrspace(1) %out, i32 %t, i32 23
  store volatile float %v23, ptr addrspace(1) %q23
  ret void
}
attributes #0 = { "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="256,256" "amdgpu-waves-per-eu"="1,8" }
attributes #1 = { "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="1,256" "amdgpu-num-vgpr"="12" }
!0 = !{i32 64, i32 2, i32 1}
